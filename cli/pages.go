package cli

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects are read at once.
const pageSize = 500

// eachPage lists in pages, and calls see after each. A list that the server has forgotten
// meanwhile goes on where it was.
func eachPage(ctx context.Context, c client.Reader, list client.ObjectList, see func(), opts ...client.ListOption) error {
	next := ""
	for {
		list.SetContinue("")
		err := c.List(ctx, list, append(opts[:len(opts):len(opts)], client.Limit(pageSize), client.Continue(next))...)
		if token := goOn(err); token != "" && token != next {
			next = token
			continue
		} else if err != nil {
			return err
		}
		see()
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// goOn is with what the server goes on with a list that it has forgotten.
func goOn(err error) string {
	var s apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &s) {
		return ""
	}
	return s.Status().Continue
}

// eachPod calls see with every pod, page by page.
func (c *Cluster) eachPod(ctx context.Context, see func(*corev1.Pod), opts ...client.ListOption) error {
	var list corev1.PodList
	err := eachPage(ctx, c.Client, &list, func() {
		for i := range list.Items {
			see(&list.Items[i])
		}
		list.Items = nil // a fresh array for the next page: some of these are kept
	}, opts...)
	if err != nil {
		return describe(fmt.Errorf("listing pods: %w", err), c)
	}
	return nil
}
