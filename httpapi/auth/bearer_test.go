package auth

import (
	"context"
	"strings"
	"testing"
)

func TestHeader(t *testing.T) {
	good := hs256(alice(""))
	tests := []struct {
		name   string
		values []string
		want   *Reason
	}{
		{"good", []string{"Bearer " + good}, nil},
		{"lower case", []string{"bearer " + good}, nil},
		{"upper case", []string{"BEARER " + good}, nil},
		{"spaces", []string{"Bearer   " + good}, nil},
		{"none", nil, ErrNoHeader},
		{"none either", []string{}, ErrNoHeader},
		{"two", []string{"Bearer " + good, "Bearer " + good}, ErrTwoHeaders},
		{"two, one empty", []string{"", "Bearer " + good}, ErrTwoHeaders},
		{"two in one", []string{"Bearer " + good + ", Bearer " + good}, ErrUnknownServiceKey},
		{"empty", []string{""}, ErrNotBearer},
		{"no scheme", []string{good}, ErrNotBearer},
		{"Basic", []string{"Basic YTpi"}, ErrNotBearer},
		{"DPoP", []string{"DPoP " + good}, ErrNotBearer},
		{"longer word", []string{"Bearers " + good}, ErrNotBearer},
		{"folded letter", []string{"Be\u00e4rer " + good}, ErrNotBearer},
		{"tab", []string{"Bearer\t" + good}, ErrNotBearer},
		{"comma", []string{"Bearer," + good}, ErrNotBearer},
		{"Bearer alone", []string{"Bearer"}, ErrNoBearer},
		{"Bearer and spaces", []string{"Bearer   "}, ErrNoBearer},
		{"at the limit", []string{"Bearer " + strings.Repeat("k", 8192)}, ErrUnknownServiceKey},
		{"past the limit", []string{"Bearer " + strings.Repeat("k", 8193)}, ErrTooLong},
	}
	a := open(t, Config{Secrets: [][]byte{secret}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := a.Authenticate(context.Background(), tt.values)
			wantReason(t, err, tt.want)
		})
	}
}
