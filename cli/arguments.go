package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exactly wants one argument per name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage("%s is missing; say: %s %s", names[len(args)], c.CommandPath(), strings.Join(names, " "))
		case len(args) > len(names):
			return unexpected(c, args[len(names)], names)
		}
		return nil
	}
}

// atMost wants an argument per name or fewer.
func atMost(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return unexpected(c, args[len(names)], names)
		}
		return nil
	}
}

func unexpected(c *cobra.Command, arg string, names []string) error {
	expected := "no argument"
	if len(names) > 0 {
		expected = strings.Join(names, " ") + " only"
	}
	return usage("%q is one argument too many; %s takes %s", arg, c.CommandPath(), expected)
}

// expectNoun makes a verb that needs a noun say which ones there are.
func expectNoun(group *cobra.Command) {
	var nouns []string
	for _, c := range group.Commands() {
		nouns = append(nouns, c.Name())
	}
	group.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("say what to %s: %s", c.Name(), strings.Join(nouns, " or "))
		}
		return usage("%q is not something to %s; say: %s", args[0], c.Name(), strings.Join(nouns, " or "))
	}
	group.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	group.DisableFlagsInUseLine = true
}

// unknownCommand refuses a word that is no command.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	near := ""
	if found := c.SuggestionsFor(args[0]); len(found) > 0 {
		near = "; did you mean " + strings.Join(found, " or ") + "?"
	}
	return usage("%q is not a command%s See: pelago --help", args[0], strings.TrimSuffix(near, "?")+map[bool]string{true: "?", false: "."}[near != ""])
}

// outputFlag adds -o with the formats a command knows beside its own.
func outputFlag(c *cobra.Command, output *string) {
	c.Flags().VarP(&format{output}, "output", "o", "json or yaml")
	offer := cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)
	completes(c, "output", offer)
}

// durationFlag adds a flag for a duration.
func durationFlag(flags *pflag.FlagSet, value *time.Duration, name string, usual time.Duration, usage string) {
	*value = usual
	flags.Var(&duration{value}, name, usage)
}

// duration is a flag that explains itself to who writes 1d.
type duration struct{ value *time.Duration }

// String returns the duration.
func (d *duration) String() string {
	if d.value == nil {
		return ""
	}
	return d.value.String()
}

// Set reads the duration.
func (d *duration) Set(s string) error {
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("this is not a duration; use h, m or s, like 24h")
	}
	*d.value = parsed
	return nil
}

// Type is what help shows.
func (d *duration) Type() string { return "duration" }

// format is a flag that accepts json and yaml.
type format struct{ value *string }

// String returns the format.
func (f *format) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

// Set checks the format.
func (f *format) Set(s string) error {
	if s != "json" && s != "yaml" {
		return fmt.Errorf("the output format %q is unknown; use json or yaml", s)
	}
	*f.value = s
	return nil
}

// Type is what help shows.
func (f *format) Type() string { return "format" }

// completes says what a command's flag may be.
func completes(c *cobra.Command, flag string, words cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, words); err != nil {
		panic(err) // the flag is there, and registered once
	}
}
