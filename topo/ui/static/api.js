// Talking to the server: documents, changes, events.

export class Problem extends Error {
  constructor(status, document) {
    super(document?.message ?? `the server answered ${status}`);
    this.status = status;
    this.hint = document?.hint ?? '';
  }
}

let session = null;
const listeners = new Set();

/** Who is logged in, and what they may do. */
export function who() {
  return session;
}

export async function startSession() {
  session = await get('/api/session');
  return session;
}

/** Called with 'live', 'wait' or 'off' when the state of the connection changes. */
export function onConnection(listener) {
  listeners.add(listener);
}

function say(state) {
  for (const listener of listeners) listener(state);
}

async function answered(response) {
  const text = await response.text();
  let document = null;
  try {
    document = JSON.parse(text);
  } catch {
    // what is no JSON came from something between here and the server
  }
  if (!response.ok) throw new Problem(response.status, document);
  return document;
}

/** The document at a path. @param {Record<string, unknown>} [query] */
export async function get(path, query, signal) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const tail = given.length ? `?${new URLSearchParams(given)}` : '';
  return answered(await fetch(path + tail, { signal, credentials: 'same-origin' }));
}

/** Ask for a change. */
export async function post(path, body) {
  return answered(await fetch(path, {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'Content-Type': 'application/json', 'X-Topo-CSRF': session?.csrf ?? '' },
    body: JSON.stringify(body ?? {}),
  }));
}

/** The path of a topology's documents. */
export function of(name, ...tail) {
  return ['/api/topologies', encodeURIComponent(name), ...tail].join('/');
}

/**
 * Follow events until `signal` aborts. A connection that breaks is made anew; one that the server
 * refuses because the session is over asks for a token.
 */
export function follow(path, query, handlers, signal) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const url = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  let source = null;
  let again = 0;
  const open = () => {
    source = new EventSource(url);
    source.onopen = () => say('live');
    source.onerror = () => {
      say('off');
      source.close();
      clearTimeout(again);
      again = setTimeout(retry, 1000);
    };
    for (const [kind, handle] of Object.entries(handlers)) {
      source.addEventListener(kind, (event) => handle(JSON.parse(event.data)));
    }
  };
  const retry = async () => {
    if (signal.aborted) return;
    try {
      await startSession();
    } catch (problem) {
      if (problem.status === 401) {
        dispatchEvent(new Event('topo-login'));
        return;
      }
      again = setTimeout(retry, 1000);
      return;
    }
    open();
  };
  say('wait');
  open();
  signal.addEventListener('abort', () => {
    clearTimeout(again);
    source.close();
  });
}
