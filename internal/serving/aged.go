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
// about to end. What becomes another protocol is left alone.
func aged(web *http.Server, age time.Duration, ending func() bool) {
	next := web.Handler
	web.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, begunKey{}, time.Now())
	}
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, ok := r.Context().Value(begunKey{}).(time.Time)
		if (ending() || ok && time.Since(begun) > age) && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
