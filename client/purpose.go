package client

// defaultPurpose is what tokend takes a purpose for that is left out.
const defaultPurpose = "default"

// Purpose holds the calls for one purpose; [Client.Purpose] makes it. It is safe for
// concurrent use.
type Purpose struct {
	client *Client
	name   string
}

// Client returns the Client that p is of.
func (p Purpose) Client() *Client { return p.client }

// Name returns what p was made with.
func (p Purpose) Name() string { return p.name }

// Key is the package's [Key] for p.
func (p Purpose) Key(user, key string) Subject { return Key(user, p.name, key) }

// Token is [TokenOf] for p.
func (p Purpose) Token(user, token string) Subject { return TokenOf(user, p.name, token) }

// userMember returns user as a request's member, which is left out where it is empty.
func userMember(user string) *string {
	if user == "" {
		return nil
	}
	return &user
}
