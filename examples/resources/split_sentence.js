// A bolt by Storm's protocol, for node without a library: emits the words of each sentence.
const lines = require('node:readline').createInterface({ input: process.stdin });
const send = (message) => process.stdout.write(JSON.stringify(message) + '\nend\n');
let text = '';
let isFirst = true;

function take(message) {
  if (isFirst) {
    isFirst = false;
    send({ pid: process.pid });
  } else if (message.stream === '__heartbeat') {
    send({ command: 'sync' });
  } else {
    for (const word of message.tuple[0].split(' ')) {
      send({ command: 'emit', anchors: [message.id], tuple: [word], need_task_ids: false });
    }
    send({ command: 'ack', id: message.id });
  }
}

lines.on('line', (line) => {
  if (line === 'end') {
    take(JSON.parse(text));
    text = '';
  } else {
    text += line;
  }
});
