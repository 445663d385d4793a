// A form service that takes each form once. Java 17 or newer, its own library, one file:
//
//   TOKEND_URL=http://127.0.0.1:8080 TOKEND_TOKEN=… PORT=3000 java Shop.java
//
// TOKEND_TOKEN is a service's key with both scopes; `tokend dev` prints one as SERVICE.
//
// /orders/new shows a form whose token is consumed: a second click is led to the order that
// the first one made. /payments/new shows one whose token is claimed: a second click gets
// the first one's answer, byte for byte.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLDecoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

public class Shop {
    static final String TOKEND_URL = System.getenv("TOKEND_URL");
    static final String TOKEND_TOKEN = System.getenv("TOKEND_TOKEN");
    static final int TRIES = 4;
    static final int WAIT = 10; // how many seconds tokend may hold a claim that another request works under
    static final Duration TIMEOUT = Duration.ofSeconds(WAIT + 5);
    static final int PATIENCE = 5; // nobody waits at a form for longer than that, even if Retry-After asks for it

    static final Answer NO_ANSWER = new Answer("{\"code\":\"no_answer\",\"next\":\"verify\"}");

    static final HttpClient http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
    static final SecureRandom random = new SecureRandom();

    // readme:begin
    // call asks tokend, and returns its answer: a success or a problem. Without an answer the
    // same is sent again, attempt included: so a try that was carried out counts once.
    static Answer call(String method, String path, String body) throws InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(TOKEND_URL + path)).timeout(TIMEOUT)
            .header("Authorization", "Bearer " + TOKEND_TOKEN).header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        for (int n = 0; n < TRIES; n++) {
            long seconds = 0;
            try {
                var answer = http.send(request, HttpResponse.BodyHandlers.ofString());
                var got = new Answer(answer.body());
                if (answer.statusCode() < 300 || !got.get("next").matches("|retry")) return got;
                seconds = answer.headers().firstValueAsLong("Retry-After").orElse(0);
            } catch (IOException | NumberFormatException e) {
                // the line broke, or a gateway answered
            }
            if (n + 1 == TRIES || seconds > PATIENCE) break;
            Thread.sleep(1000 * seconds + ThreadLocalRandom.current().nextLong(100L << n));
        }
        return NO_ANSWER;
    }

    static Page createOrder(String user, Map<String, String> form) throws InterruptedException {
        var got = call("POST", "/v1/tokens/consume", json(
            "token", form.get("tokend_token"), "user", user, "purpose", "order.create",
            "attempt", newAttempt())); // made up once for this request, never by the browser
        String ref = got.get("ref");
        if (got.get("outcome").equals("consumed")) orders.add(user, ref, form.get("item")); // this request, and no other
        if (orders.has(user, ref)) return Page.seeOther("/orders/" + ref); // made now, or by the first click
        return refused(user, "orders", got);
    }

    // refused tells a person what to do. tokend's next speaks to this service, not to them.
    static Page refused(String user, String what, Answer got) throws InterruptedException {
        String code = got.get("code"), next = got.get("next");
        if (List.of("token_used", "request_in_progress", "claim_superseded", "claim_ended").contains(code)) {
            return Page.text(409, "You have sent this form already. See /" + what
                + " in a minute; if it is not there, please start over.");
        }
        if (List.of("stop", "reissue").contains(next) || code.equals("idempotency_key_reused")) { // this request did nothing
            return showForm(user, what, 422, "Please check the form and send it again.", null);
        }
        System.out.println("tokend: " + got.text);
        if (next.equals("fix")) return Page.text(500, "We cannot take this at the moment."); // this service's own fault: a wrong key, say
        return Page.text(503, "Please look at /" + what + " before you send this again.");
    }
    // readme:end

    static Page createPayment(String user, Map<String, String> form) throws Exception {
        String amount = form.get("amount");
        var digest = MessageDigest.getInstance("SHA-256").digest(amount.getBytes(StandardCharsets.UTF_8));
        var got = call("POST", "/v1/claims", json(
            "token", form.get("tokend_token"), "user", user, "purpose", "payment.create", "wait", WAIT,
            "attempt", newAttempt(), "digest", HexFormat.of().formatHex(digest))); // a repeat says the same
        if (got.get("state").equals("completed")) return replay(got); // a repeat: the first answer again
        if (!got.get("state").equals("claimed")) return refused(user, "payments", got);

        String claim = "/v1/claims/" + got.get("claim"), ref = got.get("ref");
        if (!amount.matches("[0-9]+")) { // nothing was done, so the token is good again
            call("DELETE", claim, "");
            return showForm(user, "payments", 422, "The amount is a whole number.", form.get("tokend_token"));
        }
        var held = call("POST", claim + "/commit", "{}");
        if (!held.get("committed").equals("true")) { // nothing was done, and nothing is to be
            return refused(user, "payments", held);
        }
        // From here on nobody else is let in. If this process ends now, a repeat is told
        // claim_unfinished, and somebody looks whether the provider has the ref.
        payments.add(user, ref, amount); // a payment provider gets the ref as its idempotency key
        var paid = new Page(201, "text/plain; charset=utf-8", "Paid " + amount + ", at " + Instant.now() + ".\n");
        paid.headers.put("Location", "/payments/" + ref);
        var kept = call("PUT", claim + "/result", "{\"result\":{\"status\":201,\"headers\":" +
            json("Content-Type", paid.headers.get("Content-Type"), "Location", paid.headers.get("Location")) +
            ",\"body\":\"" + Base64.getEncoder().encodeToString(paid.body) + "\"}}");
        if (!kept.get("state").equals("completed")) System.out.println("not kept for repeats: " + ref); // paid all the same
        return paid;
    }

    static Page replay(Answer got) {
        var page = new Page(Integer.parseInt(got.get("status")), got.get("Content-Type"), "");
        page.headers.put("Location", got.get("Location"));
        page.headers.put("Idempotent-Replayed", "true");
        page.body = Base64.getDecoder().decode(got.get("body"));
        return page;
    }

    /** Shows a page that is good for one submission, so nothing may cache it. */
    static Page showForm(String user, String what, int status, String message, String token) throws InterruptedException {
        boolean order = what.equals("orders");
        if (token == null) {
            var purpose = order ? "order.create" : "payment.create";
            token = call("POST", "/v1/tokens", json("user", user, "purpose", purpose, "ttl", 3600)).get("token");
            if (token.isEmpty()) return Page.text(503, "We cannot show this form at the moment.");
        }
        var escaped = token.replace("&", "&amp;").replace("<", "&lt;").replace("\"", "&quot;");
        var page = new Page(status, "text/html; charset=utf-8", """
            <!doctype html><meta charset="utf-8"><title>%1$s</title><p>%2$s</p>
            <form method="post" action="/%1$s">
            <input type="hidden" name="tokend_token" autocomplete="off" value="%3$s">
            <label>%4$s <input name="%4$s"></label> <button>Send</button>
            </form>
            """.formatted(what, message, escaped, order ? "item" : "amount"));
        page.headers.put("Cache-Control", "no-store");
        return page;
    }

    /** 128 random bits, which name one execution. */
    static String newAttempt() {
        var b = new byte[16];
        random.nextBytes(b);
        return HexFormat.of().formatHex(b);
    }

    /** A flat JSON object: the library of Java has no JSON, so a service takes the one that it uses anyway. */
    static String json(Object... namesAndValues) {
        var out = new StringBuilder("{");
        for (int i = 0; i < namesAndValues.length; i += 2) {
            out.append(i > 0 ? "," : "").append(quote(namesAndValues[i])).append(':');
            Object v = namesAndValues[i + 1];
            out.append(v instanceof Integer ? v.toString() : quote(v));
        }
        return out.append('}').toString();
    }

    static String quote(Object o) {
        return '"' + o.toString().chars()
            .mapToObj(c -> c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", c) : Character.toString(c))
            .collect(Collectors.joining()) + '"';
    }

    /** What tokend answered. The members that are read here are never escaped, and their names stand once. */
    record Answer(String text) {
        String get(String member) {
            Matcher m = Pattern.compile("\"" + member + "\":(?:\"([^\"]*)\"|([0-9a-z]+))").matcher(text);
            return !m.find() ? "" : m.group(1) != null ? m.group(1) : m.group(2);
        }
    }

    static class Page {
        final int status;
        final Map<String, String> headers = new LinkedHashMap<>();
        byte[] body;

        Page(int status, String type, String body) {
            this.status = status;
            this.body = body.getBytes(StandardCharsets.UTF_8);
            headers.put("Content-Type", type);
        }

        static Page text(int status, String message) {
            return new Page(status, "text/plain; charset=utf-8", message + "\n");
        }

        static Page seeOther(String path) {
            var page = text(303, "");
            page.headers.put("Location", path);
            return page;
        }
    }

    /** Stands for a table of the service's own database. The ref is unique in it: that is the
     *  last fence, should Redis ever lose data. */
    static class Table {
        private final Map<List<String>, String> rows = new LinkedHashMap<>();

        synchronized void add(String user, String ref, String value) {
            if (rows.putIfAbsent(List.of(user, ref), value) != null) throw new IllegalStateException("the ref is there already");
        }

        synchronized boolean has(String user, String ref) {
            return rows.containsKey(List.of(user, ref));
        }

        synchronized String of(String user, String ref) {
            return rows.entrySet().stream().filter(e -> e.getKey().get(0).equals(user) && e.getKey().get(1).startsWith(ref))
                .map(e -> e.getKey().get(1) + " " + e.getValue()).collect(Collectors.joining("\n"));
        }
    }

    static final Table orders = new Table(), payments = new Table();

    static Page serve(HttpExchange x) throws Exception {
        var name = x.getRequestHeaders().getFirst("X-User");
        var user = name == null ? "alice" : name; // a service takes it from its session
        var path = x.getRequestURI().getPath().split("/");
        var what = path.length > 1 ? path[1] : "";
        var rest = path.length > 2 ? path[2] : "";
        var table = Map.of("orders", orders, "payments", payments).get(what);
        if (table == null) return Page.text(404, "There is no such page.");
        if (x.getRequestMethod().equals("GET")) {
            return rest.equals("new") ? showForm(user, what, 200, "", null) : Page.text(200, table.of(user, rest));
        }
        if (!x.getRequestMethod().equals("POST") || !rest.isEmpty()) return Page.text(405, "This page is not sent to like that.");

        var sent = x.getRequestBody().readNBytes((64 << 10) + 1);
        if (sent.length > 64 << 10) return Page.text(413, "The form is too large.");
        var form = new HashMap<>(Map.of("tokend_token", "", "item", "", "amount", ""));
        for (var field : new String(sent, StandardCharsets.UTF_8).split("&")) {
            var kv = field.split("=", 2);
            form.put(decode(kv[0]), kv.length > 1 ? decode(kv[1]) : "");
        }
        return table == orders ? createOrder(user, form) : createPayment(user, form);
    }

    static String decode(String s) {
        return URLDecoder.decode(s, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws IOException {
        var port = Integer.parseInt(System.getenv().getOrDefault("PORT", "3000"));
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", x -> {
            try (x) {
                Page page;
                try {
                    page = serve(x);
                } catch (Exception e) {
                    System.out.println(e);
                    page = Page.text(500, "We cannot take this at the moment.");
                }
                page.headers.forEach(x.getResponseHeaders()::set);
                x.sendResponseHeaders(page.status, page.body.length == 0 ? -1 : page.body.length);
                x.getResponseBody().write(page.body);
            }
        });
        server.start();
        System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort() + "/orders/new");
    }
}
