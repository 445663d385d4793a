package auth_test

import (
	"context"
	"errors"
	"fmt"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
)

func Example() {
	secret, sum := auth.NewServiceKey() // what tokend keygen service prints
	keys, err := auth.ParseServiceKeys("orders:" + sum + ":" + wire.ScopeConsume)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := auth.New(auth.Config{ServiceKeys: keys})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()

	id, err := a.Authenticate(context.Background(), []string{"Bearer " + secret})
	fmt.Println(id, id.Has(wire.ScopeConsume), id.Has(wire.ScopeIssue), err)

	_, err = a.Authenticate(context.Background(), []string{"Basic YTpi"})
	var no *auth.Refusal
	fmt.Println(errors.As(err, &no), no.Reason.Code(), no.Reason.Detail())
	// Output:
	// key:orders true false <nil>
	// true unauthenticated the Authorization header's scheme must be Bearer
}
