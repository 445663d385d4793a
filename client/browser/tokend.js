// tokend.js sends a form as one submission, however often it is sent: the second click, the
// Enter key held down, the answer that never came. It needs nothing but a browser.
//
//	import { protect } from '/tokend.js';
//	protect(document.querySelector('#order'), { endpoint: '/token' });
//
// Pages without modules take /tokend.global.js, which makes it tokend.protect.
//
// A form is sent by fetch, with one token for one intention: the same one through every
// repeat, until there is an answer. Then the next submission is another intention, with a
// fresh token. What the form says (action, method, enctype, validation, and the button's
// formaction, formmethod, formenctype, name and value) holds as it would without the script;
// but the answer is shown in this page, whatever target says. A form that is not POST is
// left alone, and its token is kept out of the URL. So is a submission that the page's own
// listener has prevented: one that was there before protect was called.
//
// Without the script the field tokend_token that the service has rendered does the same,
// but for the waiting. The script takes that field's token as its first one. Where the page
// came out of the browser's history it does not: the token may be spent.
//
// The answer is given as a form's would be: a redirect is gone to (and so fetched once more),
// HTML is shown in place of the page; the form in it is protected again. HTML shown so becomes
// part of this page and its origin, so it is shown only where it comes from that origin: of any
// other's there is a message alone. Its scripts and on… attributes do not run. Its
// Content-Security-Policy joins the page's own, but for connect-src, which the next submission
// needs; an answer that is to be sandboxed is not shown in place. Relative addresses in it hold by
// a base element, unless the page's own base-uri forbids one. A redirect to another origin cannot
// be followed by fetch unless that lets this page in: such a service answers JSON, and the page
// handles tokend:outcome.
//
// A refusal (application/problem+json) says by its next what is right:
//
//	stop     the form is not sent again by itself; its message is shown
//	verify   the same: somebody has to look what the first submission did
//	reissue  nothing was done: a fresh token is fetched and the form sent again, once
//	wait     the same is sent again after Retry-After
//	retry    the same: it speaks to tokend's own callers, so it comes from the endpoint alone,
//	         or from a service that hands it on by mistake, where the same token is safe too
//	fix      its message is shown, and the token stays: what was edited after it was sent
//	         stands for another submission only when a person says so, by the button Start anew
//
// No answer at all, and a 502, 503 or 504 without a next, are a lost reply: the same is sent
// again with the same token, so it counts once.
//
// # Options
//
//	endpoint       where tokens are fetched by POST: guard's IssueHandler, or tokend's own
//	               /v1/tokens. Without one the form's field is all there is, and the page has
//	               to be loaded again for another submission. A relative one is resolved once,
//	               when protect is called.
//	purpose        what the token is for, where the endpoint wants to be told
//	authorization  a bearer, or a function that returns one or a promise of one. It goes to
//	               the endpoint, and with the form where that is of the endpoint's origin.
//	               After a 401 a function is asked once more, with {refused: true}.
//	ahead          true: the token is fetched at once, and again before it expires
//	header         true: the token goes in the header Tokend-Token instead of the field
//	json           true: the form is sent as JSON, unless it holds a file
//	credentials    fetch's, for endpoint and form; same-origin where not set
//	timeout        seconds within which a try is answered or given up; 40 where not set
//	patience       seconds for which the same is sent again by itself; 60 where not set
//	status         the element that messages stand in; one at the form's end where not set
//	messages       texts in place of the script's own, by state or by a problem's code
//	lang           en or zh; the page's lang where not set
//
// # Events
//
// They are dispatched on the form, bubble, and preventDefault keeps the script from its part.
//
//	tokend:progress  {state, seconds, problem, message}: fetching, sending, waiting, lost,
//	                 reissued; held is a submission that is left out, as one is under way
//	tokend:outcome   {ok, replayed, response, problem, message}: the answer, or that there is
//	                 none (no response). Its part is to show it.
//	tokend:shown     {protection}, on the form of HTML that was shown in place of the page
//
// protect returns {reset, stop}; called again for the same form it replaces what was there, and
// keeps the token. reset drops the token, so that the next submission is another one; the one
// under way goes on with its own token to its end. stop lets go of the form.

const FIELD = 'tokend_token';
const HEADER = 'Tokend-Token';
const BUSY = 'data-tokend-busy';

const texts = {
	en: {
		fetching: 'One moment …',
		sending: 'Sending …',
		waiting: 'Not yet. The same is sent again in {seconds} s …',
		lost: 'No answer. The same is sent again in {seconds} s; it counts once.',
		reissued: 'The page had expired, and nothing was done. Sending with a fresh token …',
		held: 'It is being sent already.',
		done: 'Sent.',
		replayed: 'This was sent before. Here is the answer that it got.',
		unanswered: 'There is no answer. You can send it again: it counts once.',
		unsure: 'There is no answer. Please look what was done before you send it again.',
		refused: 'This was not accepted ({status}). You can mend it and send it again.',
		failed: 'Something went wrong on the other side ({status}).',
		broken: 'Something went wrong in this page.',
		reload: 'This page was good for one submission. Please load it again.',
		anew: 'Start anew',
		again: 'Load the page again',
		expired: 'The page has expired and nothing was done. Please send it again.',
	},
	zh: {
		fetching: '请稍候……',
		sending: '正在提交……',
		waiting: '尚未完成，{seconds} 秒后会再次发送同一请求……',
		lost: '没有收到回应，{seconds} 秒后会再次发送同一请求；只会计一次。',
		reissued: '页面已过期，什么都没有执行。正在换用新的令牌提交……',
		held: '正在提交中。',
		done: '已提交。',
		replayed: '此前已提交过，这是当时的结果。',
		unanswered: '没有收到回应。可以再次提交：只会计一次。',
		unsure: '没有收到回应。再次提交之前，请先查看是否已经办理。',
		refused: '未被接受（{status}）。可以修改后再次提交。',
		failed: '对方出现错误（{status}）。',
		broken: '此页面出现错误。',
		reload: '此页面只能提交一次，请重新加载。',
		anew: '重新开始',
		again: '重新加载页面',
		expired: '页面已过期，什么都没有执行。请再次提交。',
		// What guard says in English.
		token_missing: '提交时没有带上令牌：请重新加载页面后再提交。',
		token_used: '此表单已经提交过：请查看第一次提交的结果。',
		token_stale: '页面太旧，无法判断是否提交过：请先查看记录；若没有，再重新加载页面。',
		token_lost: '表单的令牌已丢失：请先查看记录；若没有，再重新加载页面。',
		token_gone: '表单已提交过，或页面已过期：请先查看记录；若没有，再重新加载页面。',
		token_revoked: '此表单已被撤回，什么都没有执行。请再次提交。',
		wrong_user: '此页面是由另一位用户打开的，什么都没有执行。请再次提交。',
		wrong_purpose: '令牌属于另一张表单，什么都没有执行。请再次提交。',
		token_invalid: '令牌无效，什么都没有执行。请再次提交。',
		request_in_progress: '第一次提交仍在处理中。请稍后再次提交，即可看到结果。',
		claim_unfinished: '第一次提交中途中断：请先查看它做了什么，再决定是否重新开始。',
		idempotency_key_reused: '此表单此前提交的是另外的内容。若要提交新的内容，请重新开始。',
		store_unavailable: '目前无法受理，什么都没有执行。请稍后再次提交。',
		outcome_unknown: '无法确定是否已受理：请先查看记录，再决定是否重新开始。',
		rate_limited: '请求过于频繁，请稍候。',
		unauthenticated: '请先登录。',
		forbidden: '不允许这样做。',
		internal: '服务出现故障，什么都没有执行。',
	},
};

// Where a person has to say that the next submission is another one. All other refusals say
// that nothing was done, or that the same may be sent again.
const settled = ['token_used', 'idempotency_key_reused'];

/** Refused ends a submission that has no answer of its form's. */
class Refused extends Error {
	constructor(key, answer) {
		super(key);
		this.key = key;
		this.answer = answer;
	}
}

/** GONE ends a submission whose page was left. */
const GONE = new Error('the page was left');

const protections = new WeakMap();

class Protection {
	#form;
	#options;
	#words;
	#field; // the hidden field; made when it is needed
	#token = null; // of the next submission: {value, left()}; sent: it is what an intention is known by
	#run = null; // the submission under way: {token}; forgotten: by a reset; over: it has its outcome
	#pressed = null; // its button
	#abort = null;
	#strip = false; // the submission that the browser makes next is not POST
	#timer = 0;
	#fetching = false; // ahead
	#listening = new AbortController();
	#text;
	#button;

	constructor(form, options) {
		if (!(form instanceof HTMLFormElement)) {
			throw new TypeError('protect: a form is required');
		}
		this.#form = form;
		this.#options = { credentials: 'same-origin', timeout: 40, patience: 60, ...options };
		if (this.#options.endpoint) {
			// Once: what is shown later may have another base.
			this.#options.endpoint = new URL(this.#options.endpoint, document.baseURI).href;
		}
		this.#field = form.querySelector(`input[name="${FIELD}"]`);
		if (!this.#options.endpoint && !this.#field) {
			throw new TypeError(`protect: an endpoint is required, or the field ${FIELD} in the form`);
		}
		const lang = (this.#options.lang || document.documentElement.lang || 'en').toLowerCase();
		this.#words = { ...texts.en, ...(lang.startsWith('zh') ? texts.zh : {}), ...this.#options.messages };
		const before = protections.get(form);
		before?.stop();
		if (before?.#token) {
			this.#token = before.#token; // it may have been sent
		} else if (this.#field && this.#field.value && !(this.#options.endpoint && fromHistory())) {
			this.#token = { value: this.#field.value, sent: false, left: () => Infinity, margin: 0 };
		}
		this.#status();
		protections.set(form, this);
		const signal = this.#listening.signal;
		form.addEventListener('submit', (event) => this.#submitted(event), { signal });
		form.addEventListener('formdata', (event) => this.#collected(event), { signal });
		addEventListener('pageshow', (event) => event.persisted && this.#cameBack(), { signal });
		document.addEventListener('visibilitychange', () => this.#keepAhead(), { signal });
		this.#keepAhead();
	}

	/** reset drops the token: the next submission is another one, with a token of its own. */
	reset() {
		this.#drop();
		if (this.#run && !this.#run.over) {
			// It may have been carried out: a fresh token would have it carried out again.
			this.#run.forgotten = true;
			return;
		}
		this.#say('');
		if (!this.#options.endpoint) {
			location.reload();
			return;
		}
		this.#keepAhead();
	}

	/** stop lets go of the form. What is under way is not shown any more. */
	stop() {
		this.#listening.abort();
		this.#leave();
		clearTimeout(this.#timer);
		this.#text.parentElement.remove();
		if (protections.get(this.#form) === this) {
			protections.delete(this.#form);
		}
	}

	// Submitting.

	#submitted(event) {
		if (event.defaultPrevented) {
			return; // the page's own check
		}
		const sends = this.#reads(event.submitter);
		if (sends.method !== 'post' || !/^https?:$/.test(sends.url.protocol)) {
			this.#strip = sends.method !== 'post';
			return;
		}
		event.preventDefault();
		if (this.#run) {
			this.#progress('held');
			return;
		}
		const run = (this.#run = { token: null, forgotten: false, over: false });
		this.#busy(true, event.submitter);
		// What is sent is what stands in the form now, through all repeats.
		this.#deliver(run, { ...sends, entries: entriesOf(this.#form, event.submitter) })
			.catch((error) => {
				if (error instanceof Refused) {
					return { key: error.key, ...error.answer };
				}
				throw error;
			})
			.then((outcome) => run === this.#run && this.#settle(run, outcome))
			.catch((error) => {
				if (error !== GONE) {
					this.#leave();
					this.#say(this.#words.broken);
					throw error; // of the authorization, or of this script: for the console
				}
			});
	}

	/** The token of a form that the browser itself sends must not come to stand in a URL. */
	#collected(event) {
		if (this.#strip || this.#reads(null).method !== 'post') {
			event.formData.delete(FIELD);
		}
		this.#strip = false;
	}

	/** #reads returns where and how the form is sent, as HTML has it. */
	#reads(submitter) {
		const own = (name) => submitter?.getAttribute('form' + name) ?? this.#form.getAttribute(name) ?? '';
		return {
			url: new URL(own('action') || document.URL, document.baseURI),
			method: own('method').toLowerCase(),
			multipart: own('enctype').toLowerCase() === 'multipart/form-data',
		};
	}

	/** #deliver sends the same until it is answered. */
	async #deliver(run, sends) {
		const patience = this.#patience();
		let reissued = false;
		let asked = false;
		for (let n = 1; ; n++) {
			const token = await this.#ready(run);
			this.#progress('sending');
			token.sent = true;
			const answer = await this.#try(run, sends.url, await this.#request(sends, token.value, asked));
			const { next, status } = answer;
			if (!status || (!next && [502, 503, 504].includes(status))) {
				if (!(await patience(run, 'lost', answer, backoff(n)))) {
					throw new Refused('unanswered', answer);
				}
			} else if (next === 'reissue' && !reissued && this.#options.endpoint) {
				reissued = true;
				run.token = null;
				this.#drop();
				this.#progress('reissued', answer);
			} else if (next === 'wait' || next === 'retry') {
				if (!(await patience(run, 'waiting', answer, answer.after))) {
					return answer;
				}
			} else if (status === 401 && !asked && this.#authorizes(sends.url)) {
				asked = true;
			} else {
				return answer;
			}
		}
	}

	/** #settle shows how a submission ended, and says what becomes of its token. */
	#settle(run, answer) {
		const { response, problem, replayed, next, status } = answer;
		run.over = true;
		const ok = Boolean(response?.ok);
		const code = problem?.code;
		const over = ok || (next === 'stop' && !settled.includes(code)) || next === 'reissue';
		if (over) {
			this.#drop();
		}
		let key = answer.key;
		if (!key && ok) {
			key = replayed ? 'replayed' : 'done';
		} else if (!key) {
			key = next === 'reissue' ? 'expired' : status < 500 ? 'refused' : 'failed';
		}
		const open = key === 'unanswered' || next === 'wait' || next === 'retry'; // the same may be sent again
		if (run.forgotten && open) {
			key = 'unsure'; // what is sent next counts on its own
		}
		const message = this.#message(key, answer);
		const detail = { ok, replayed: Boolean(replayed), response: response ?? null, problem: problem ?? null, message };
		const shows = this.#dispatch('tokend:outcome', detail);
		const place = shows && !answer.key && response && !problem && placeOf(response);
		if (place === 'redirected') {
			go(response.url); // and stay busy: the page is being left
			return;
		}
		this.#leave();
		if (place === 'html') {
			show(answer.text, response, this.#form, this.#options);
			return;
		}
		if (!shows) {
			this.#say('');
		} else if (key === 'reload' || (((over && !ok) || run.forgotten) && !this.#options.endpoint)) {
			this.#say(message, this.#words.again, () => location.reload());
		} else if (next === 'verify' || settled.includes(code)) {
			this.#say(message, this.#words.anew, () => this.reset());
		} else {
			this.#say(message);
		}
		this.#keepAhead();
	}

	async #request(sends, token, refused) {
		const headers = { Accept: 'application/problem+json, */*;q=0.8', ...(await this.#authorization(sends.url, refused)) };
		const entries = sends.entries.slice();
		if (this.#options.header) {
			headers[HEADER] = token;
		} else {
			entries.unshift([FIELD, token]); // first: a service that reads parts as they come has it before all files
		}
		const files = entries.some(([, value]) => typeof value !== 'string');
		let body;
		if (this.#options.json && !files) {
			headers.Accept = 'application/problem+json, application/json;q=0.9, */*;q=0.8';
			headers['Content-Type'] = 'application/json';
			body = JSON.stringify(asObject(entries));
		} else if (sends.multipart || this.#options.json) {
			body = new FormData();
			entries.forEach(([name, value]) => body.append(name, value));
		} else {
			body = new URLSearchParams(entries.map(([name, value]) => [crlf(name), crlf(value.name ?? value)]));
		}
		return { method: 'POST', headers, body };
	}

	// Tokens.

	/** #ready returns the token of run. One that was sent is kept: it says what became of it. */
	async #ready(run) {
		const token = run.token ?? (run.forgotten ? null : this.#token);
		if (token && (token.sent || token.left() > token.margin)) {
			return (run.token = token);
		}
		if (!this.#options.endpoint) {
			throw new Refused('reload');
		}
		this.#progress('fetching');
		run.token = await this.#fetch(run);
		if (!run.forgotten) {
			this.#take(run.token);
		}
		return run.token;
	}

	/** #fetch fetches a token. One whose reply is lost is nobody's, so another may be asked for. */
	async #fetch(run) {
		const { endpoint, purpose } = this.#options;
		const url = new URL(endpoint);
		const body = JSON.stringify(purpose ? { purpose } : {});
		const patience = this.#patience();
		let asked = false;
		for (let n = 1; ; n++) {
			const began = clock();
			const headers = { Accept: 'application/json, application/problem+json', 'Content-Type': 'application/json' };
			Object.assign(headers, await this.#authorization(url, asked));
			const answer = await this.#try(run, url, { method: 'POST', headers, body });
			const { status, next } = answer;
			if (answer.response?.ok && typeof answer.json?.token === 'string') {
				return lasting(answer.json, began);
			}
			if (status === 401 && !asked && this.#authorizes(url)) {
				asked = true;
			} else if (next === 'wait' || next === 'retry') {
				if (!(await patience(run, 'waiting', answer, answer.after))) {
					throw new Refused('failed', { ...answer, response: undefined });
				}
			} else if (!status || (!next && [502, 503, 504].includes(status))) {
				if (!(await patience(run, 'lost', answer, backoff(n)))) {
					throw new Refused('unanswered', answer);
				}
			} else {
				throw new Refused(status < 500 && !answer.response.ok ? 'refused' : 'failed', { ...answer, response: undefined, next: undefined });
			}
		}
	}

	/** #authorizes tells whether asking for the authorization anew can come to another one. */
	#authorizes(url) {
		return typeof this.#options.authorization === 'function' && this.#known(url);
	}

	#known(url) {
		const { endpoint } = this.#options;
		return Boolean(endpoint) && new URL(endpoint).origin === url.origin;
	}

	async #authorization(url, refused) {
		let { authorization } = this.#options;
		if (!authorization || !this.#known(url)) {
			return {};
		}
		if (typeof authorization === 'function') {
			authorization = await authorization({ refused });
		}
		return { Authorization: /\s/.test(authorization) ? authorization : 'Bearer ' + authorization };
	}

	#take(token) {
		this.#token = token;
		if (this.#options.header) {
			return;
		}
		if (!this.#field) {
			this.#field = Object.assign(document.createElement('input'), { type: 'hidden', name: FIELD, autocomplete: 'off' });
			this.#form.prepend(this.#field);
		}
		this.#field.value = token.value;
	}

	#drop() {
		this.#token = null;
		if (this.#field) {
			this.#field.value = '';
		}
	}

	/** #keepAhead has a token at hand that was not sent, for as long as somebody looks at the page. */
	#keepAhead() {
		clearTimeout(this.#timer);
		const { ahead, endpoint } = this.#options;
		if (!ahead || !endpoint || this.#run || this.#fetching || document.visibilityState !== 'visible') {
			return;
		}
		const token = this.#token;
		if (token && (token.sent || token.left() === Infinity)) {
			return;
		}
		const due = token ? token.left() - token.margin : 0;
		if (due > 0) {
			this.#timer = setTimeout(() => this.#keepAhead(), Math.min(due, 2 ** 31 - 1));
			return;
		}
		this.#fetching = true;
		this.#fetch({ ahead: true })
			.finally(() => (this.#fetching = false))
			.then(
				(fresh) => {
					// A submission that has begun meanwhile has its own.
					if (!this.#run && this.#token === token) {
						this.#take(fresh);
						this.#keepAhead();
					}
				},
				() => {}, // the submission asks again, and says what is wrong
			);
	}

	// The page.

	/** #cameBack follows the page's return from the browser's history, as it was left. */
	#cameBack() {
		const sent = this.#token?.sent || Boolean(this.#run);
		this.#leave();
		this.#say('');
		if (!this.#options.endpoint) {
			if (sent || !this.#token) {
				location.reload();
			}
			return;
		}
		this.#drop();
		this.#keepAhead();
	}

	#leave() {
		this.#run = null;
		this.#abort?.abort();
		this.#busy(false);
	}

	/** #busy marks the form and its button. The button is not disabled: it would lose the focus, and its value. */
	#busy(on, button) {
		const form = this.#form;
		form.toggleAttribute(BUSY, on);
		form.setAttribute('aria-busy', String(on));
		this.#pressed?.removeAttribute('aria-disabled');
		this.#pressed = on ? button : null;
		this.#pressed?.setAttribute('aria-disabled', 'true');
	}

	/** #status makes the place for messages. It stands before its first text does, or nobody is read it. */
	#status() {
		const place = document.createElement('div');
		place.className = 'tokend-status';
		this.#text = document.createElement('p');
		this.#text.setAttribute('role', 'status');
		this.#text.setAttribute('aria-live', 'polite');
		this.#button = Object.assign(document.createElement('button'), { type: 'button', hidden: true });
		place.append(this.#text, this.#button);
		(this.#options.status ?? this.#form).append(place);
	}

	#say(message, label, press) {
		if (this.#text.textContent !== message) {
			this.#text.textContent = message;
		}
		this.#button.hidden = !label;
		this.#button.textContent = label ?? '';
		this.#button.onclick = press ?? null;
	}

	#progress(state, answer, seconds) {
		const message = this.#fill(this.#words[state], { seconds });
		const detail = { state, seconds: seconds ?? null, problem: answer?.problem ?? null, message };
		if (this.#dispatch('tokend:progress', detail) && state !== 'held') {
			this.#say(message);
		}
	}

	/** #message is the page's own text, or the service's, or the script's. */
	#message(key, { problem, status }) {
		const code = problem?.code;
		const isKnown = key !== 'unsure' && typeof code === 'string' && Object.hasOwn(this.#words, code) && !Object.hasOwn(texts.en, code);
		const own = isKnown ? this.#words[code] : '';
		const said = typeof problem?.detail === 'string' && key !== 'expired' && key !== 'unsure' ? problem.detail : '';
		return own || said || this.#fill(this.#words[key], { status });
	}

	#fill(text, values) {
		return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
	}

	#dispatch(type, detail) {
		return this.#form.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, cancelable: true }));
	}

	// The network.

	/** #patience returns what waits before the same is sent again, and tells whether it is to be. */
	#patience() {
		const began = clock();
		return async (run, state, answer, seconds) => {
			if (since(began) / 1000 + seconds > this.#options.patience) {
				return false;
			}
			if (!run.ahead) {
				this.#progress(state, answer, Math.ceil(seconds));
			}
			await new Promise((done) => setTimeout(done, seconds * 1000));
			this.#stillOn(run);
			return true;
		};
	}

	#stillOn(run) {
		if (this.#listening.signal.aborted || (!run.ahead && run !== this.#run)) {
			throw GONE;
		}
	}

	/** #try makes one request. Without a whole answer it has no status. */
	async #try(run, url, init) {
		const abort = new AbortController();
		if (!run.ahead) {
			this.#abort = abort;
		}
		const timer = setTimeout(() => abort.abort(), this.#options.timeout * 1000);
		let response, text;
		try {
			response = await fetch(url, { ...init, credentials: this.#options.credentials, cache: 'no-store', signal: abort.signal });
			text = await response.clone().text();
		} catch {
			this.#stillOn(run);
			return {};
		} finally {
			clearTimeout(timer);
			if (this.#abort === abort) {
				this.#abort = null; // to abort it later would break what listeners still read
			}
		}
		this.#stillOn(run);
		return read(response, text);
	}
}

/** read returns what an answer says. */
function read(response, text) {
	const type = response.headers.get('Content-Type') ?? '';
	let json;
	if (/^application\/([\w.+-]+\+)?json\b/i.test(type)) {
		try {
			json = JSON.parse(text);
		} catch {
			// It says that it is JSON, and is none.
		}
	}
	const isProblem = !response.ok && json && typeof json === 'object' && (typeof json.next === 'string' || /problem\+json/i.test(type));
	const problem = isProblem ? json : undefined;
	return {
		response,
		text,
		json,
		problem,
		status: response.status,
		next: typeof problem?.next === 'string' ? problem.next : undefined,
		after: retryAfter(response.headers.get('Retry-After'), problem?.retry_after),
		replayed: response.headers.get('Idempotent-Replayed') === 'true',
	};
}

/** retryAfter returns seconds, from the header or a problem's member: another origin's header may be out of sight. */
function retryAfter(header, member) {
	let seconds = Number(header || member);
	if (Number.isNaN(seconds)) {
		seconds = (Date.parse(header) - Date.now()) / 1000;
	}
	return seconds >= 1 ? seconds : 1;
}

/** backoff returns after how many seconds what had no answer is sent again. */
function backoff(n) {
	return Math.min(2 ** (n - 1), 8) * (1 + Math.random() / 4);
}

/** lasting returns a token that knows how long it is good: from before it was asked for. */
function lasting({ token, ttl }, began) {
	const life = typeof ttl === 'number' ? ttl * 1000 : Infinity;
	return { value: token, sent: false, left: () => life - since(began), margin: Math.min(life / 4, 30000) };
}

// The monotonic clock stands still in some browsers while the machine sleeps, and the other
// one is set by people: whichever went further counts.
function clock() {
	return [performance.now(), Date.now()];
}

function since([monotonic, wall]) {
	return Math.max(performance.now() - monotonic, Date.now() - wall);
}

/** entriesOf returns what the form holds, and the button that sends it, but for a token. */
function entriesOf(form, submitter) {
	let data;
	try {
		data = new FormData(form, submitter);
	} catch {
		data = new FormData(form); // a browser that knows no second argument
	}
	if (submitter?.name && !data.has(submitter.name) && submitter.type !== 'image') {
		data.append(submitter.name, submitter.value);
	}
	return [...data].filter(([name]) => name !== FIELD);
}

/** asObject returns entries as JSON has them: a name that stands several times is an array. */
function asObject(entries) {
	const all = new Map();
	for (const [name, value] of entries) {
		all.set(name, all.has(name) ? [].concat(all.get(name), value) : value);
	}
	return Object.fromEntries(all);
}

/** crlf returns text with the line breaks that a form sends. */
function crlf(text) {
	return text.replace(/\r\n|\r|\n/g, '\r\n');
}

/** fromHistory tells whether the page was come back to, so that what it holds may be spent. */
function fromHistory() {
	return !shown && performance.getEntriesByType('navigation')[0]?.type === 'back_forward';
}

/** placeOf returns how a browser would show a form's answer: by going there, or as the page. */
function placeOf(response) {
	if (response.redirected) {
		return 'redirected';
	}
	const says = (header) => response.headers.get(header) ?? '';
	const html = /^(text\/html|application\/xhtml\+xml)\b/i.test(says('Content-Type')) && !/^attachment\b/i.test(says('Content-Disposition'));
	// What is shown acts as this origin, with all that it may do.
	const own = new URL(response.url).origin === self.origin && !policiesOf(response).some((p) => p.has('sandbox'));
	return html && own ? 'html' : '';
}

/** policiesOf returns the answer's Content-Security-Policies: their directives by name. */
function policiesOf(response) {
	return (response.headers.get('Content-Security-Policy') ?? '').split(',').map((policy) => {
		const directives = new Map();
		for (const directive of policy.trim().split(/\s*;\s*/)) {
			const name = directive.split(/\s/, 1)[0].toLowerCase();
			if (name && !directives.has(name)) {
				directives.set(name, directive); // of two the first one counts
			}
		}
		return directives;
	});
}

/** obey has the page obey the answer's policies, too, from here on. */
function obey(response, hasBase) {
	for (const directives of policiesOf(response)) {
		// These hold in a header alone. So does what is reported, to whom the page itself reports.
		['frame-ancestors', 'report-uri', 'report-to'].forEach((name) => directives.delete(name));
		if (!hasBase) {
			directives.delete('base-uri'); // the only base is the script's own
		}
		directives.delete('connect-src');
		if (directives.has('default-src')) {
			directives.set('connect-src', 'connect-src *');
		}
		if (directives.size) {
			const content = [...directives.values()].join('; ');
			document.head.append(Object.assign(document.createElement('meta'), { httpEquiv: 'Content-Security-Policy', content }));
		}
	}
}

function go(url) {
	if (url === document.URL.replace(/#.*/, '')) {
		location.reload(); // to go where one is would only move the page
	} else {
		location.assign(url);
	}
}

let shown = false; // something in place of the page that the browser loaded

/** show puts an answer in place of the page. The address stays: loading it again is safe. */
function show(html, response, form, options) {
	const { url } = response;
	const doc = new DOMParser().parseFromString(html, 'text/html');
	for (const element of doc.querySelectorAll('*')) {
		for (const name of element.getAttributeNames().filter((n) => /^on/i.test(n))) {
			element.removeAttribute(name);
		}
	}
	const hasBase = Boolean(doc.querySelector('base'));
	if (!hasBase && new URL('.', url).href !== new URL('.', document.baseURI).href) {
		doc.head.prepend(Object.assign(doc.createElement('base'), { href: url }));
	}
	doc.querySelectorAll('noscript').forEach((n) => n.remove()); // read as if there were no script
	const index = [...document.forms].indexOf(form);
	protections.get(form)?.stop();
	obey(response, hasBase);
	document.documentElement.replaceWith(doc.documentElement);
	shown = true;
	scrollTo(0, 0);
	const focus = document.querySelector('[autofocus], [aria-invalid="true"]') ?? document.querySelector('h1, main');
	if (focus?.matches('h1, main')) {
		focus.tabIndex = -1; // so that a screen reader begins there
	}
	focus?.focus();
	const again = form.id ? document.getElementById(form.id) : document.forms[index];
	if (!(again instanceof HTMLFormElement) || !(options.endpoint || again.querySelector(`input[name="${FIELD}"]`))) {
		return;
	}
	const status = options.status?.id ? document.getElementById(options.status.id) : null;
	const protection = protect(again, { ...options, status });
	again.dispatchEvent(new CustomEvent('tokend:shown', { detail: { protection }, bubbles: true }));
}

function protect(form, options = {}) {
	const protection = new Protection(form, options);
	return { reset: () => protection.reset(), stop: () => protection.stop() };
}

export { protect };
