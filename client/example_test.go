package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// newTokend starts a tokend for an example and returns a client of it.
func newTokend() (c *client.Client, stop func()) {
	s, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	return s.Client(), s.Close
}

func Example() {
	c, stop := newTokend() // elsewhere: client.New("https://tokend.internal", client.ServiceKey(key))
	defer stop()
	ctx := context.Background()
	orders := c.Purpose("order.create")

	// The form is shown: t.Value goes into a hidden field.
	t, err := orders.Issue(ctx, "alice", client.TTL(time.Hour))
	if err != nil {
		log.Fatal(err)
	}

	// The form comes in, twice.
	for range 2 {
		_, err := orders.Consume(ctx, "alice", t.Value)
		switch {
		case err == nil:
			fmt.Println("create the order")
		case errors.Is(err, client.ErrUsed):
			fmt.Println("show the order that the first submission created")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// create the order
	// show the order that the first submission created
}

// What a form service does about each error.
func ExampleRefusal() {
	react := func(err error) string {
		var no *client.Refusal
		var down *client.Fault
		switch {
		case err == nil:
			return "do the work"
		case errors.Is(err, client.ErrUsed):
			return "show the first submission's result, or look for its record"
		case errors.As(err, &no):
			switch no.Next {
			case client.NextReissue, client.NextStop:
				return "nothing was done: show the form again with a new token"
			case client.NextVerify:
				return "look for the record; if there is none, start over with a new token"
			case client.NextWait:
				return "ask the user to send it again later"
			default: // NextFix, or one that this service does not know
				return "report a fault of this service"
			}
		case errors.As(err, &down) && down.MaybeDone:
			return "look for the record; if there is none, start over with a new token"
		default:
			return "nothing was done: the same form may be sent again"
		}
	}

	c, stop := newTokend()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := c.Consume(ctx, "alice", "what somebody typed in")
	fmt.Println(react(err))
	cancel()
	_, err = c.Consume(ctx, "alice", "ott_")
	fmt.Println(react(err))
	// Output:
	// nothing was done: show the form again with a new token
	// nothing was done: the same form may be sent again
}

// A Token can be printed and logged: only its Ref shows.
func ExampleToken() {
	c, stop := newTokend()
	defer stop()
	t, err := c.Issue(context.Background(), "alice", client.TTL(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(fmt.Sprint(t) == t.Ref, t.TTL)
	// Output: true 1m0s
}

func ExamplePurpose_Status() {
	c, stop := newTokend()
	defer stop()
	ctx := context.Background()
	t, err := c.Issue(ctx, "alice", client.TTL(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	before, _ := c.Status(ctx, "alice", t.Value)
	c.Consume(ctx, "alice", t.Value)
	after, _ := c.Status(ctx, "alice", t.Value)
	fmt.Println(before.State, after.State)
	// Output: issued used
}

// Several forms of one page, each for itself.
func ExamplePurpose_ConsumeBatch() {
	c, stop := newTokend()
	defer stop()
	ctx := context.Background()
	lines := c.Purpose("order.line")
	tokens, err := lines.IssueBatch(ctx, "alice", 3)
	if err != nil {
		log.Fatal(err)
	}

	items := make([]client.Item, len(tokens))
	for i, t := range tokens {
		items[i] = client.Item{User: "alice", Token: t.Value}
	}
	if _, err := lines.Consume(ctx, "alice", tokens[1].Value); err != nil {
		log.Fatal(err)
	}
	outcomes, err := lines.ConsumeBatch(ctx, items)
	if err != nil {
		log.Fatal(err) // nothing is known of any of them
	}
	for i, o := range outcomes {
		switch {
		case o.Err == nil:
			fmt.Println(i, "is new")
		case errors.Is(o.Err, client.ErrUsed):
			fmt.Println(i, "was sent before")
		default:
			fmt.Println(i, o.Err) // as for Consume
		}
	}
	// Output:
	// 0 is new
	// 1 was sent before
	// 2 is new
}

// A callback that comes twice is worked off once, and answered alike.
func ExampleClient_Do() {
	c, stop := newTokend()
	defer stop()
	book := func(context.Context) (map[string]string, error) {
		fmt.Println("booked")
		return map[string]string{"booking": "B7"}, nil
	}
	callback := func(w http.ResponseWriter, r *http.Request) {
		event := r.FormValue("event")
		done, err := c.Do(r.Context(), client.Key("stripe:acct_1", "payment.callback", event),
			func(ctx context.Context, cl *client.Claim) (client.Result, error) {
				// What can be done twice comes first. An error here releases the claim.
				if err := cl.Commit(ctx); err != nil {
					return client.Result{}, err
				}
				out, err := book(ctx) // never a second time, whatever happens
				if err != nil {
					return client.JSON(http.StatusBadGateway, map[string]string{"error": "not booked"})
				}
				return client.JSON(http.StatusCreated, out)
			})
		var no *client.Refusal
		switch {
		case err == nil, errors.Is(err, client.ErrNotKept): // it is done, and this is its result
			for name, value := range done.Header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(max(done.Status, http.StatusOK))
			w.Write(done.Body)
		case errors.As(err, &no) && no.Next == client.NextWait:
			w.Header().Set("Retry-After", fmt.Sprint(no.RetryAfter.Seconds()))
			http.Error(w, "the first one is being worked off", http.StatusConflict)
		case errors.Is(err, client.ErrUnfinished):
			http.Error(w, "somebody has to look for the booking", http.StatusConflict)
		default:
			http.Error(w, "send it again", http.StatusServiceUnavailable)
		}
	}
	for range 2 {
		w := httptest.NewRecorder()
		callback(w, httptest.NewRequest("POST", "/callback?event=evt_1", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// booked
	// 201 {"booking":"B7"}
	// 201 {"booking":"B7"}
}

// What was left unfinished is resolved by somebody who has looked for the business record.
func ExampleClient_Resolve() {
	s, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	c, ctx := s.Client(), context.Background()
	payment := client.Key("alice", "payment", "K1")

	crashed, _, err := c.Claim(ctx, payment, client.CommitFirst())
	if err != nil {
		log.Fatal(err)
	}
	crashed.Close() // before it has completed
	s.Advance(30 * time.Second)

	_, _, err = c.Claim(ctx, payment)
	fmt.Println(errors.Is(err, client.ErrUnfinished))

	recordExists := true // as the service's own database says
	cl, done, err := c.Resolve(ctx, payment)
	switch {
	case err != nil:
		log.Fatal(err)
	case done != nil:
		fmt.Println("somebody else has completed it")
	case recordExists:
		defer cl.Close()
		err = cl.Complete(ctx, client.Result{Status: http.StatusCreated})
	default:
		defer cl.Close()
		err = cl.Release(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}

	_, done, err = c.Claim(ctx, payment)
	fmt.Println(done.Status, done.Replayed, err)
	// Output:
	// true
	// 201 true <nil>
}

func ExamplePurpose_Revoke() {
	c, stop := newTokend()
	defer stop()
	ctx := context.Background()
	t, err := c.Issue(ctx, "alice")
	if err != nil {
		log.Fatal(err)
	}
	got, err := c.Revoke(ctx, "alice", t.Value)
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Consume(ctx, "alice", t.Value)
	fmt.Println(got.State, errors.Is(err, client.ErrRevoked))
	// Output: revoked true
}

// One Client acts for each user with the JWT that the request's context holds.
func ExampleTokenSource() {
	type jwtKey struct{} // set by the service's own middleware
	source := client.TokenSource(func(ctx context.Context) (string, error) {
		jwt, ok := ctx.Value(jwtKey{}).(string)
		if !ok {
			return "", errors.New("nobody is logged in")
		}
		return jwt, nil
	})
	c, err := client.New("http://tokend.internal", source, client.HTTPClient(http.DefaultClient))
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Issue(context.Background(), "") // whom the JWT names
	fmt.Println(err)
	// Output: tokend: issue: no answer: credential: nobody is logged in
}
