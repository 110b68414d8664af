package serving

import (
	"context"
	"net"
	"net/http"
	"time"
)

// connectionAge is how long a connection is kept for further requests. A client that goes on using
// one stays with this replica, also when others are meant to have its requests already, as this one is about
// to end; and a request that is written in the moment in which the server closes the connection has no
// answer, and is not tried again. So who asks all the time is told at an answer that it is the
// last one there. It is less than the hook preStop takes, by what endpoints take to be known.
const connectionAge = 2 * time.Second

type begunKey struct{}

// aged has a server end connections that are older than an age, each with an answer, and all when it is
// about to end. What asks for another protocol is left alone.
func aged(web *http.Server, age time.Duration, ending func() bool) {
	next := web.Handler
	web.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, begunKey{}, time.Now())
	}
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			next.ServeHTTP(w, r)
			return
		}
		begun, ok := r.Context().Value(begunKey{}).(time.Time)
		answer := &answer{ResponseWriter: w, last: func() bool { return ending() || ok && time.Since(begun) > age }}
		next.ServeHTTP(answer, r)
		answer.begin() // one that says nothing
	})
}

// answer says that it is the last one of its connection, if it is so when it begins: what is being answered when
// a server is told to end is told so too.
type answer struct {
	http.ResponseWriter
	last  func() bool
	begun bool
}

func (a *answer) begin() {
	if !a.begun && a.last() {
		a.Header().Set("Connection", "close")
	}
	a.begun = true
}

// WriteHeader begins the answer, unless it is an interim one.
func (a *answer) WriteHeader(code int) {
	if code >= http.StatusOK {
		a.begin()
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write writes of the answer.
func (a *answer) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

// FlushError sends what was written so far.
func (a *answer) FlushError() error {
	a.begin()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap lets taking over the connection through.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
