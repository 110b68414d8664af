package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// newDocs writes the reference of all commands, for docs/cli.
func newDocs(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Short:  "Write the reference of all commands",
		Hidden: true,
		Args:   exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making a folder for the reference: %w", err)
			}
			root.InitDefaultCompletionCmd()
			var page strings.Builder
			page.WriteString("<!-- Made by: make gen -->\n")
			reference(&page, root)
			if err := os.WriteFile(filepath.Join(args[0], "pelago.md"), []byte(page.String()), 0o644); err != nil {
				return fmt.Errorf("writing the reference: %w", err)
			}
			return nil
		},
	}
}

// reference writes a command and all below it in Markdown.
func reference(page *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(page, "\n## %s\n\n%s\n", c.CommandPath(), strings.TrimSpace(long))
	if c.Runnable() {
		fmt.Fprintf(page, "\n```\n%s\n```\n", c.UseLine())
	}
	if len(c.Aliases) > 0 {
		fmt.Fprintf(page, "\nAlso: %s.\n", strings.Join(c.Aliases, ", "))
	}
	if c.Example != "" {
		fmt.Fprintf(page, "\n### Examples\n\n```\n%s\n```\n", c.Example)
	}
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(page, "\n### Options\n\n```\n%s```\n", flags.FlagUsages())
	}
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() && !child.Hidden {
			reference(page, child)
		}
	}
}
