package topology

import (
	"fmt"
	"time"
)

// Patience bounds every wait: far more than any machine needs.
const Patience = 90 * time.Second

// Until waits until ok.
func Until(what string, ok func() bool) error {
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain until %s", Patience, what)
		}
	}
	return nil
}
