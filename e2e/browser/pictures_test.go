package browser_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var picture = flag.String("picture", "", "where to put the picture of the demo page that the README shows")

// TestPictures takes pictures of the demo page for people to look at. By itself it holds that
// nothing is wider than the screen.
func TestPictures(t *testing.T) {
	dir := filepath.Join("..", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, l := range []look{
		{width: 1280, height: 1060, language: "en"},
		{width: 1280, height: 900, dark: true, language: "zh-CN"},
		{width: 390, height: 844, phone: true, language: "zh-CN"},
		{width: 390, height: 844, phone: true, dark: true, language: "en"},
		{width: 320, height: 640, phone: true, language: "en"},
	} {
		name := []string{"demo", map[bool]string{false: "desktop", true: "phone"}[l.phone], map[bool]string{false: "light", true: "dark"}[l.dark], l.language[:2]}
		if l.width == 320 {
			name[1] = "small"
		}
		t.Run(strings.Join(name[1:], " "), func(t *testing.T) {
			t.Parallel()
			p := openDemo(t, l)
			shoot := func(after string) []byte {
				t.Helper()
				if w := get[int64](p, `document.documentElement.scrollWidth`); w > l.width {
					t.Errorf("%s: the page is %d wide", after, w)
				}
				ctx := p.ctx
				png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, strings.Join(append(name, after), "-")+".png"), png, 0o644); err != nil {
					t.Fatal(err)
				}
				return png
			}
			p.click("#clear button")
			p.until(`!document.querySelector('#line')`)
			p.try("double")
			p.run(`document.activeElement.blur(); scrollTo(0, 0)`)
			shoot("double")
			if *picture != "" && !l.phone && !l.dark {
				png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
				if err == nil {
					err = os.WriteFile(*picture, png, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if l.width == 320 {
				return
			}
			p.try("changed")
			p.try("crash.after")
			p.protect("off")
			p.try("double")
			p.protect("replay")
			p.fillIn("#quantity", "0")
			p.click("#send")
			p.until(`document.querySelector('#quantity').getAttribute('aria-invalid') === 'true'`)
			shoot("much")
		})
	}
}
