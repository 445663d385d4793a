package client

// defaultPurpose is what tokend takes a purpose for that is left out.
const defaultPurpose = "default"

// Purpose holds the calls for one purpose; [Client.Purpose] makes it. It is safe for
// concurrent use.
type Purpose struct {
	client *Client
	name   string
}

// userMember returns user as a request's member, which is left out where it is empty.
func userMember(user string) *string {
	if user == "" {
		return nil
	}
	return &user
}
