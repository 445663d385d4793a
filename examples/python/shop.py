"""A form service that takes each form once. Python 3.8 or newer, and its standard library.

    TOKEND_URL=http://127.0.0.1:8080 TOKEND_TOKEN=… PORT=3000 python3 shop.py

TOKEND_TOKEN is a service's key with both scopes; `tokend dev` prints one as SERVICE.

/orders/new shows a form whose token is consumed: a second click is led to the order that
the first one made. /payments/new shows one whose token is claimed: a second click gets the
first one's answer, byte for byte.
"""

import base64
import datetime
import hashlib
import html
import http.client
import http.server
import json
import os
import random
import secrets
import threading
import time
import urllib.parse
import urllib.request

TOKEND_URL = os.environ["TOKEND_URL"].rstrip("/")
TOKEND_TOKEN = os.environ["TOKEND_TOKEN"]
TRIES = 4
WAIT = 10  # how many seconds tokend may hold a claim that another request works under
TIMEOUT = WAIT + 5
PATIENCE = 5  # nobody waits at a form for longer than that, even if Retry-After asks for it

NO_ANSWER = {"code": "no_answer", "next": "verify"}


class EveryStatus(urllib.request.HTTPErrorProcessor):
    """Hands every answer on: a refusal is one, and a redirect is not followed."""

    def http_response(self, request, response):
        return response

    https_response = http_response


opener = urllib.request.build_opener(EveryStatus)


# readme:begin
def call(method, path, body=None):
    """Asks tokend, and returns its answer: a success or a problem. Without an answer the
    same is sent again, attempt included: so a try that was carried out counts once."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + TOKEND_TOKEN, "Content-Type": "application/json"}
    for n in range(TRIES):
        seconds = 0
        try:
            request = urllib.request.Request(TOKEND_URL + path, data, headers, method=method)
            with opener.open(request, timeout=TIMEOUT) as answer:
                seconds = int(answer.headers.get("Retry-After") or 0)
                got = json.loads(answer.read() or "{}")
            if answer.status < 300 or got.get("next", "retry") != "retry":
                return got
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # the line broke, or a gateway sent a page of its own
        if n + 1 == TRIES or seconds > PATIENCE:
            break
        time.sleep(seconds + random.uniform(0, 0.1 * 2**n))
    return NO_ANSWER


def create_order(user, form):
    got = call("POST", "/v1/tokens/consume", {
        "token": form["tokend_token"], "user": user, "purpose": "order.create",
        "attempt": secrets.token_hex(16),  # made up once for this request, never by the browser
    })
    if got.get("outcome") == "consumed":  # this request, and no other, does the work
        orders.add(user, got["ref"], form["item"])
    if orders.has(user, got.get("ref")):  # made now, or by the first click
        return see_other("/orders/" + got["ref"])
    return refused(user, "orders", got)


def refused(user, what, got):
    """Tells a person what to do. tokend's `next` speaks to this service, not to them."""
    code, next_ = got.get("code"), got.get("next")
    if code in ("token_used", "request_in_progress", "claim_superseded", "claim_ended"):
        return text(409, f"You have sent this form already. See /{what} in a minute; if it is not there, please start over.")
    if next_ in ("stop", "reissue") or code == "idempotency_key_reused":  # this request did nothing
        return show_form(user, what, 422, "Please check the form and send it again.")
    print("tokend:", json.dumps(got), flush=True)
    if next_ == "fix":  # this service's own fault: a wrong key, say
        return text(500, "We cannot take this at the moment.")
    return text(503, f"Please look at /{what} before you send this again.")
# readme:end


def create_payment(user, form):
    amount = form["amount"]
    got = call("POST", "/v1/claims", {
        "token": form["tokend_token"], "user": user, "purpose": "payment.create",
        "attempt": secrets.token_hex(16), "wait": WAIT,
        "digest": hashlib.sha256(amount.encode()).hexdigest(),  # a repeat says the same
    })
    if got.get("state") == "completed":  # a repeat: the first answer again
        return replay(got["result"])
    if got.get("state") != "claimed":
        return refused(user, "payments", got)
    claim = "/v1/claims/" + got["claim"]
    if not amount.isascii() or not amount.isdigit():  # nothing was done, so the token is good again
        call("DELETE", claim)
        return show_form(user, "payments", 422, "The amount is a whole number.", form["tokend_token"])
    held = call("POST", claim + "/commit", {})
    if not held.get("committed"):  # nothing was done, and nothing is to be
        return refused(user, "payments", held)
    # From here on nobody else is let in. If this process ends now, a repeat is told
    # claim_unfinished, and somebody looks whether the provider has the ref.
    ref = got["ref"]
    payments.add(user, ref, amount)  # a payment provider gets ref as its idempotency key
    headers = {"Content-Type": "text/plain; charset=utf-8", "Location": "/payments/" + ref}
    body = f"Paid {amount}, at {datetime.datetime.now(datetime.timezone.utc).isoformat()}.\n".encode()
    result = {"status": 201, "headers": headers, "body": base64.b64encode(body).decode()}
    if call("PUT", claim + "/result", {"result": result}).get("state") != "completed":
        print("not kept for repeats:", ref, flush=True)  # paid all the same
    return 201, headers, body


def replay(result):
    headers = {**result["headers"], "Idempotent-Replayed": "true"}
    return result["status"], headers, base64.b64decode(result["body"])


FIELDS = {"orders": "item", "payments": "amount"}
PURPOSES = {"orders": "order.create", "payments": "payment.create"}


def show_form(user, what, status=200, message="", token=None):
    """The page is good for one submission, so nothing may cache it."""
    if token is None:
        got = call("POST", "/v1/tokens", {"user": user, "purpose": PURPOSES[what], "ttl": 3600})
        if "token" not in got:
            return text(503, "We cannot show this form at the moment.")
        token = got["token"]
    page = f"""<!doctype html><meta charset="utf-8"><title>{what}</title><p>{message}</p>
<form method="post" action="/{what}">
<input type="hidden" name="tokend_token" autocomplete="off" value="{html.escape(token)}">
<label>{FIELDS[what]} <input name="{FIELDS[what]}"></label> <button>Send</button>
</form>
"""
    return status, {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"}, page.encode()


def text(status, message):
    return status, {"Content-Type": "text/plain; charset=utf-8"}, (message + "\n").encode()


def see_other(path):
    return 303, {"Location": path}, b""


class Table:
    """Stands for a table of the service's own database. The ref is unique in it: that is
    the last fence, should Redis ever lose data."""

    def __init__(self):
        self.lock, self.rows = threading.Lock(), {}

    def add(self, user, ref, value):
        with self.lock:
            if (user, ref) in self.rows:
                raise KeyError("the ref is there already")
            self.rows[user, ref] = value

    def has(self, user, ref):
        with self.lock:
            return (user, ref) in self.rows

    def of(self, user):
        with self.lock:
            return [f"{ref} {value}" for (owner, ref), value in self.rows.items() if owner == user]


orders, payments = Table(), Table()
TABLES = {"orders": orders, "payments": payments}


class Shop(http.server.BaseHTTPRequestHandler):
    def session_user(self):
        return self.headers.get("X-User", "alice")  # a service takes it from its session

    def do_GET(self):
        user, (_, what, *rest) = self.session_user(), (self.path + "/").split("/")
        if what not in TABLES:
            return self.send(text(404, "There is no such page."))
        if rest[0] == "new":
            return self.send(show_form(user, what))
        rows = [row for row in TABLES[what].of(user) if row.startswith(rest[0])]
        self.send(text(200, "\n".join(rows)))

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > 64 << 10:
            return self.send(text(413, "The form is too large."))
        fields = urllib.parse.parse_qsl(self.rfile.read(length).decode(), keep_blank_values=True)
        form = {"tokend_token": "", "item": "", "amount": "", **dict(fields)}
        create = {"/orders": create_order, "/payments": create_payment}.get(self.path)
        self.send(create(self.session_user(), form) if create else text(404, "There is no such page."))

    def send(self, answer):
        status, headers, body = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            pass  # whoever clicked twice hangs the first request up

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Shop)
    print(f"listening on http://127.0.0.1:{server.server_port}/orders/new", flush=True)
    server.serve_forever()
