// The list of topologies, as it comes.
const app = document.getElementById('app');
new EventSource('/api/events').addEventListener('figures', (event) => {
  app.replaceChildren(...JSON.parse(event.data).topologies.map((row) => {
    const line = document.createElement('p');
    line.textContent = `${row.name} ${row.status} ${row.reason}`;
    return line;
  }));
});
