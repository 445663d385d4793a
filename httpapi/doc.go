// Package httpapi serves tokend's API over HTTP.
//
// Every call takes one path: who is calling, whether the caller may, the body, what the
// token package says, the answer. It holds no rules of its own: package auth tells the
// caller, package token decides, and one place turns refusals and faults into problems
// (RFC 9457) by package wire's one table of codes.
package httpapi
