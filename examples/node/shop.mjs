// A form service that takes each form once. Node 18 or newer, and no packages.
//
//   TOKEND_URL=http://127.0.0.1:8080 TOKEND_TOKEN=… PORT=3000 node shop.mjs
//
// TOKEND_TOKEN is a service's key with both scopes; `tokend dev` prints one as SERVICE.
//
// /orders/new shows a form whose token is consumed: a second click is led to the order that
// the first one made. /payments/new shows one whose token is claimed: a second click gets
// the first one's answer, byte for byte.

import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const { TOKEND_URL, TOKEND_TOKEN, PORT = '3000' } = process.env;
const TRIES = 4;
const WAIT = 10; // how many seconds tokend may hold a claim that another request works under
const TIMEOUT = (WAIT + 5) * 1000;
const PATIENCE = 5; // nobody waits at a form for longer than that, even if Retry-After asks for it

const NO_ANSWER = { code: 'no_answer', next: 'verify' };

// readme:begin
// call asks tokend, and returns its answer: a success or a problem. Without an answer the
// same is sent again, attempt included: so a try that was carried out counts once.
async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${TOKEND_TOKEN}`, 'Content-Type': 'application/json' };
  for (let n = 0; n < TRIES; n++) {
    let seconds = 0;
    try {
      const answer = await fetch(TOKEND_URL + path, {
        method, headers, body: JSON.stringify(body), redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT),
      });
      seconds = Number(answer.headers.get('Retry-After')) || 0;
      const got = JSON.parse((await answer.text()) || '{}');
      if (answer.ok || (got.next ?? 'retry') !== 'retry') return got;
    } catch {
      // the line broke, or a gateway sent a page of its own
    }
    if (n + 1 === TRIES || seconds > PATIENCE) break;
    await sleep(1000 * seconds + Math.random() * 100 * 2 ** n);
  }
  return NO_ANSWER;
}

async function createOrder(user, form) {
  const got = await call('POST', '/v1/tokens/consume', {
    token: form.get('tokend_token') ?? '', user, purpose: 'order.create',
    attempt: randomBytes(16).toString('hex'), // made up once for this request, never by the browser
  });
  if (got.outcome === 'consumed') orders.add(user, got.ref, form.get('item')); // this request, and no other
  if (orders.has(user, got.ref)) return seeOther(`/orders/${got.ref}`); // made now, or by the first click
  return refused(user, 'orders', got);
}

// refused tells a person what to do. tokend's next speaks to this service, not to them.
function refused(user, what, got) {
  if (['token_used', 'request_in_progress', 'claim_superseded', 'claim_ended'].includes(got.code)) {
    return text(409, `You have sent this form already. See /${what} in a minute; if it is not there, please start over.`);
  }
  if (['stop', 'reissue'].includes(got.next) || got.code === 'idempotency_key_reused') { // this request did nothing
    return showForm(user, what, 422, 'Please check the form and send it again.');
  }
  console.log('tokend:', JSON.stringify(got));
  if (got.next === 'fix') return text(500, 'We cannot take this at the moment.'); // this service's own fault: a wrong key, say
  return text(503, `Please look at /${what} before you send this again.`);
}
// readme:end

async function createPayment(user, form) {
  const token = form.get('tokend_token') ?? '';
  const amount = form.get('amount') ?? '';
  const got = await call('POST', '/v1/claims', {
    token, user, purpose: 'payment.create', wait: WAIT,
    attempt: randomBytes(16).toString('hex'),
    digest: createHash('sha256').update(amount).digest('hex'), // a repeat says the same
  });
  if (got.state === 'completed') return replay(got.result); // a repeat: the first answer again
  if (got.state !== 'claimed') return refused(user, 'payments', got);

  const claim = `/v1/claims/${got.claim}`;
  if (!/^[0-9]+$/.test(amount)) { // nothing was done, so the token is good again
    await call('DELETE', claim);
    return showForm(user, 'payments', 422, 'The amount is a whole number.', token);
  }
  const held = await call('POST', `${claim}/commit`, {});
  if (!held.committed) return refused(user, 'payments', held); // nothing was done, and nothing is to be

  // From here on nobody else is let in. If this process ends now, a repeat is told
  // claim_unfinished, and somebody looks whether the provider has the ref.
  payments.add(user, got.ref, amount); // a payment provider gets the ref as its idempotency key
  const headers = { 'Content-Type': 'text/plain; charset=utf-8', Location: `/payments/${got.ref}` };
  const body = Buffer.from(`Paid ${amount}, at ${new Date().toISOString()}.\n`);
  const kept = await call('PUT', `${claim}/result`, {
    result: { status: 201, headers, body: body.toString('base64') },
  });
  if (kept.state !== 'completed') console.log('not kept for repeats:', got.ref); // paid all the same
  return { status: 201, headers, body };
}

function replay({ status, headers, body }) {
  return { status, headers: { ...headers, 'Idempotent-Replayed': 'true' }, body: Buffer.from(body, 'base64') };
}

const FIELDS = { orders: 'item', payments: 'amount' };
const PURPOSES = { orders: 'order.create', payments: 'payment.create' };

// showForm shows a page that is good for one submission, so nothing may cache it.
async function showForm(user, what, status = 200, message = '', token = undefined) {
  if (token === undefined) {
    const got = await call('POST', '/v1/tokens', { user, purpose: PURPOSES[what], ttl: 3600 });
    if (!got.token) return text(503, 'We cannot show this form at the moment.');
    token = got.token;
  }
  const escaped = token.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const body = `<!doctype html><meta charset="utf-8"><title>${what}</title><p>${message}</p>
<form method="post" action="/${what}">
<input type="hidden" name="tokend_token" autocomplete="off" value="${escaped}">
<label>${FIELDS[what]} <input name="${FIELDS[what]}"></label> <button>Send</button>
</form>
`;
  return { status, headers: { 'Content-Type': 'text/html; charset=utf-8', 'Cache-Control': 'no-store' }, body };
}

function text(status, message) {
  return { status, headers: { 'Content-Type': 'text/plain; charset=utf-8' }, body: `${message}\n` };
}

function seeOther(path) {
  return { status: 303, headers: { Location: path }, body: '' };
}

// Table stands for a table of the service's own database. The ref is unique in it: that is
// the last fence, should Redis ever lose data.
class Table {
  rows = new Map();

  add(user, ref, value) {
    const key = JSON.stringify([user, ref]);
    if (this.rows.has(key)) throw new Error('the ref is there already');
    this.rows.set(key, { user, line: `${ref} ${value}` });
  }

  has(user, ref) { return this.rows.has(JSON.stringify([user, ref])); }

  of(user) { return [...this.rows.values()].filter((r) => r.user === user).map((r) => r.line); }
}

const orders = new Table();
const payments = new Table();
const tables = new Map([['orders', orders], ['payments', payments]]);

async function serve(request) {
  const user = request.headers['x-user'] ?? 'alice'; // a service takes it from its session
  const [, what, rest = ''] = new URL(request.url, 'http://shop').pathname.split('/');
  const table = tables.get(what);
  if (!table) return text(404, 'There is no such page.');
  if (request.method === 'GET' && rest === 'new') return showForm(user, what);
  if (request.method === 'GET') return text(200, table.of(user).filter((line) => line.startsWith(rest)).join('\n'));
  if (request.method !== 'POST' || rest !== '') return text(405, 'This page is not sent to like that.');

  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    if ((length += chunk.length) > 64 << 10) return text(413, 'The form is too large.');
    chunks.push(chunk);
  }
  const form = new URLSearchParams(Buffer.concat(chunks).toString());
  return what === 'orders' ? createOrder(user, form) : createPayment(user, form);
}

const server = http.createServer(async (request, response) => {
  try {
    const { status, headers, body } = await serve(request);
    response.writeHead(status, headers).end(body);
  } catch (e) {
    console.log(e);
    response.writeHead(500).end();
  }
});
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/orders/new`);
});
