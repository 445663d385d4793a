package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"example.com/tokend/client"
)

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
	fmt.Printf("issued %v, good for %v\n", t, t.TTL)
	// Output: issued t_00112233445566778899aabbccddeeff, good for 1m0s
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
