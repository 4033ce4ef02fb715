// Command amqpgen writes the Go code of internal/front/amqp/wire that can be derived from AMQP's definition.
//
//	amqpgen import XML  > amqp091.def    takes the facts from the definition that the AMQP working group published as XML
//	amqpgen generate DEF > methods.gen.go writes the code
//
// The compact definition in between is kept in the tree, so that a change of the protocol shows as a small difference, and so that
// generating needs nothing from outside. It has a line for each constant, class, property and method:
//
//	constant NAME VALUE [soft|hard]
//	class NAME INDEX
//	property TYPE NAME
//	method NAME INDEX (TYPE NAME)…
//
// A field that AMQP reserves has "-" for a name. Who may send a method is not said: the published definition has it wrong in places,
// and the session knows.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "amqpgen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: amqpgen import XML | amqpgen generate DEFINITION")
	}
	in, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	var out []byte
	switch args[0] {
	case "import":
		out, err = importXML(in)
	case "generate":
		out, err = generate(in)
	default:
		err = fmt.Errorf("unknown verb %q", args[0])
	}
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
