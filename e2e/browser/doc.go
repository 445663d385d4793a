// Package browser holds client/browser's script and the demo page of tokend dev to what they
// promise, in a real Chromium, on a real tokend dev. What a page does that it should not (an
// error on the console, a breach of its policy, a request to another host) fails its test.
//
// The demo page's pictures are written to e2e/screenshots, for people to look at. The one in
// the README is taken anew by
//
//	go test ./browser -run TestPictures -picture ../../docs/demo.png
package browser
