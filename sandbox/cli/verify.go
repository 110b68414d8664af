package cli

import "github.com/spf13/cobra"

func newVerify(e *env) *cobra.Command { return &cobra.Command{Use: "verify", Hidden: true} }
