// The demo page's own script. The form is sent by tokend.js; the buttons below it send
// requests as browsers do that have no such script, so that one sees what tokend makes of them.
import { protect } from '/tokend.js';

const words = JSON.parse(document.getElementById('words').textContent);
const form = document.getElementById('form');
const settings = document.getElementById('settings');
const board = document.getElementById('board');
const say = document.getElementById('say');
const notice = document.getElementById('notice');
const chosen = document.body.dataset; // protection, life, user: as the service has them

const FIELD = 'tokend_token';
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

document.documentElement.classList.add('scripts');

// The board.

let asking = null;

/** refresh asks what is new, unless that is being asked. */
function refresh() {
	return (asking ??= look());
}

/** refreshed asks what is new by now. */
async function refreshed() {
	await asking;
	await refresh();
}

async function look() {
	try {
		const version = board.querySelector('.counts').dataset.version;
		const response = await fetch('/demo/board?version=' + version);
		if (response.status === 200) {
			board.innerHTML = await response.text(); // which the service has escaped
		} else if (response.status === 401) {
			location.reload(); // the session is gone: tokend dev was started anew
		}
	} catch {
		say.textContent = words.failed;
	} finally {
		asking = null;
	}
}

setInterval(() => document.visibilityState === 'visible' && refresh(), 1000);
addEventListener('pageshow', (event) => event.persisted && refresh());

const counts = () => {
	const { requests, orders } = board.querySelector('.counts').dataset;
	return { requests: Number(requests), orders: Number(orders) };
};

// Settings.

async function change(to) {
	const response = await fetch('/demo/settings', { method: 'POST', body: new URLSearchParams(to) });
	if (!response.ok) {
		throw new Error(words.failed);
	}
	Object.assign(chosen, to);
	for (const [name, value] of Object.entries(to)) {
		settings.elements[name].value = value;
	}
}

settings.addEventListener('change', async (event) => {
	const { name, value } = event.target;
	await change({ [name]: value });
	forget();
	guardForm();
});

document.getElementById('clear').addEventListener('submit', async (event) => {
	event.preventDefault();
	await fetch('/demo/clear', { method: 'POST' });
	say.textContent = '';
	last = null;
	forget();
	protection &&= protect(form, { endpoint: '/demo/token' }); // whose message goes, and whose token stays
	await refreshed();
});

// The form.

let last = null; // what was sent last: {fields, token}
let protection = null;
let answered = () => {};
let pageToken = null; // of the form as it stands, where nobody looks at it

/** guardForm gives the form to tokend.js, or takes it away. */
function guardForm() {
	protection?.stop();
	protection = chosen.protection === 'off' ? null : protect(form, { endpoint: '/demo/token' });
	protection?.reset(); // another life, another user: another token
}

const fieldsOf = () => Object.fromEntries([...new FormData(form)].filter(([name]) => name !== FIELD));

form.addEventListener('tokend:progress', ({ detail }) => {
	if (detail.state === 'held') {
		say.textContent = words.held;
	}
	if (detail.state === 'sending') {
		notice.replaceChildren();
		last = { fields: fieldsOf(), token: form.elements[FIELD].value };
	}
	refresh();
});

form.addEventListener('tokend:outcome', async ({ detail }) => {
	await refreshed();
	await show(detail.response, detail.problem);
	answered(detail);
});

// Without protection each click is a request, as it is where nobody has thought of it.
form.addEventListener('submit', async (event) => {
	if (chosen.protection !== 'off') {
		return;
	}
	event.preventDefault();
	const token = (pageToken ??= fetchToken());
	const answer = await send(fieldsOf(), await token, '');
	if (pageToken === token) {
		pageToken = null; // the next page has another
	}
	await refreshed();
	await show(answer.response, answer.problem);
});

/** show says above the form what came of it, beside tokend.js's own message below it. */
async function show(response, problem) {
	const body = response && !problem ? await response.json().catch(() => ({})) : {};
	forget();
	if (body.wrong?.quantity) {
		const { quantity } = form.elements;
		document.getElementById('quantity-wrong').textContent = body.wrong.quantity;
		quantity.setAttribute('aria-invalid', 'true');
		quantity.focus();
	}
	if (body.order) {
		note('good', words.made + ' ' + body.order);
	} else if (problem) {
		note('warn', firstOf(problem.ref), problem.code, problem.next);
	}
}

/** forget takes away what is said of a submission, which would be taken for the next one's. */
function forget() {
	notice.replaceChildren();
	document.getElementById('quantity-wrong').textContent = '';
	form.elements.quantity.removeAttribute('aria-invalid');
}

/** firstOf says which order the submission called ref has made: how a service looks for its record. */
function firstOf(ref) {
	const made = ref && [...board.querySelectorAll('#line li')].find((li) => li.dataset.order !== '0' && li.textContent.includes(ref));
	return made ? fill(words['first.made'], { order: made.dataset.order }) : '';
}

function note(tone, text, code, next) {
	const p = document.createElement('p');
	const fact = (value) => Object.assign(document.createElement('code'), { textContent: value });
	p.className = 'notice ' + tone;
	if (code) {
		p.append(fact(code), ' · ' + words.next, fact(next), text && ' · ');
	}
	p.append(text);
	notice.replaceChildren(p);
}

// Requests without tokend.js.

async function fetchToken() {
	const response = await fetch('/demo/token', { method: 'POST' });
	const body = await response.json();
	if (!response.ok) {
		throw new Error(body.detail);
	}
	return body.token;
}

async function send(fields, token, step) {
	last = { fields, token };
	let response;
	try {
		response = await fetch(form.action, {
			method: 'POST',
			body: new URLSearchParams({ ...fields, [FIELD]: token }),
			headers: { Accept: 'application/problem+json, application/json', 'Demo-Step': step },
		});
		const body = await response.clone().json();
		return { response, problem: body.code ? body : null, order: body.order };
	} catch {
		return { response: null, problem: null };
	}
}

const one = { item: 'coffee', quantity: '1' };

const tries = {
	async double() {
		const token = await fetchToken();
		const first = send(one, token, 'click-1');
		await sleep(80);
		await Promise.all([first, send(one, token, 'click-2')]);
	},
	async tabs() {
		const [a, b] = await Promise.all([fetchToken(), fetchToken()]);
		await Promise.all([send(one, a, 'tab-1'), send({ ...one, item: 'tea' }, b, 'tab-2')]);
	},
	async mistake() {
		const token = await fetchToken();
		await send({ ...one, quantity: '0' }, token, 'mistake');
		await send(one, token, 'mended');
	},
	async expire(what) {
		const life = Number(chosen.life);
		const short = Math.min(life, 5);
		if (short !== life) {
			await change({ life: short });
		}
		let answer;
		try {
			const token = await fetchToken();
			for (let left = short + 1; left > 0; left--) {
				say.textContent = fill(words['wait.expiry'], { what, seconds: left });
				await sleep(1000);
			}
			answer = await send(one, token, 'expired');
		} finally {
			if (short !== life) {
				await change({ life });
			}
		}
		if (answer.problem?.next === 'reissue') {
			await send(one, await fetchToken(), 'fresh');
		}
	},
	async replay() {
		last ?? (await send(one, await fetchToken(), ''));
		await send(last.fields, last.token, 'replay');
	},
	async changed() {
		const { fields, token } = last ?? { fields: one, token: await fetchToken() };
		last ?? (await send(fields, token, ''));
		await send({ ...fields, quantity: fields.quantity === '2' ? '3' : '2' }, token, 'changed');
		last = { fields, token };
	},
	async other() {
		const user = chosen.user;
		const token = await fetchToken();
		await change({ user: user === 'alice' ? 'bob' : 'alice' });
		try {
			await send(one, token, 'other');
		} finally {
			await change({ user });
		}
	},
	'crash.before': () => crash('before'),
	'crash.after': () => crash('after'),
};

/** crash has the service die in the middle, and lets tokend.js see to it; without it, whoever has no answer clicks again. */
async function crash(when) {
	await fetch('/demo/crash', { method: 'POST', body: new URLSearchParams({ when }) });
	if (chosen.protection === 'off') {
		const token = await fetchToken();
		await send(one, token, 'crash');
		await send(one, token, 'again');
		return;
	}
	protection.reset();
	form.elements.item.value = one.item;
	form.elements.quantity.value = one.quantity;
	const outcome = new Promise((done) => (answered = done));
	form.requestSubmit(document.getElementById('send'));
	await outcome;
}

let busy = false;

document.getElementById('try').addEventListener('click', async (event) => {
	const button = event.target.closest('button[data-try]');
	if (!button || busy) {
		return;
	}
	busy = true;
	const what = button.textContent;
	button.setAttribute('aria-disabled', 'true');
	document.body.toggleAttribute('data-busy', true);
	say.textContent = fill(words.doing, { what });
	forget();
	const looking = setInterval(refresh, 250);
	await refreshed();
	const was = counts();
	try {
		await tries[button.dataset.try](what);
		await refreshed();
		const is = counts();
		say.textContent = fill(words.done, { what, requests: is.requests - was.requests, orders: is.orders - was.orders });
	} catch (error) {
		say.textContent = error.message || words.failed;
	} finally {
		clearInterval(looking);
		button.removeAttribute('aria-disabled');
		document.body.toggleAttribute('data-busy', false);
		busy = false;
	}
});

if (chosen.protection !== 'off') {
	protection = protect(form, { endpoint: '/demo/token' });
}
