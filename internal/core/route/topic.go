package route

import "strings"

// topic is a node of the trie of a topic exchange's binding keys, one word a level. A word of a key is what lies between dots; the
// empty key has no words. In binding keys * stands for one word and # for any number of words, none included.
type topic struct {
	words map[string]*topic
	star  *topic
	hash  *topic
	loops bool    // this node is a #: it stays active whatever word comes
	here  []entry // bindings whose key ends here
	mark  uint64
}

func split(key string, each func(word string)) {
	if key == "" {
		return
	}
	for {
		word, rest, more := strings.Cut(key, ".")
		each(word)
		if !more {
			return
		}
		key = rest
	}
}

// bind adds or removes a binding.
func (t *topic) bind(e entry, gone bool) int {
	path := []*topic{t}
	var words []string
	split(e.binding.Key, func(word string) {
		t = t.child(word)
		path, words = append(path, t), append(words, word)
	})
	n := change(&t.here, e.binding, gone, e.itself)
	for i := len(words) - 1; i >= 0 && path[i+1].empty(); i-- {
		path[i].drop(words[i])
	}
	return n
}

func (t *topic) child(word string) *topic {
	switch word {
	case "*":
		if t.star == nil {
			t.star = &topic{}
		}
		return t.star
	case "#":
		if t.hash == nil {
			t.hash = &topic{loops: true}
		}
		return t.hash
	}
	c := t.words[word]
	if c == nil {
		c = &topic{}
		if t.words == nil {
			t.words = map[string]*topic{}
		}
		t.words[word] = c
	}
	return c
}

func (t *topic) empty() bool {
	return len(t.here) == 0 && len(t.words) == 0 && t.star == nil && t.hash == nil
}

func (t *topic) drop(word string) {
	switch word {
	case "*":
		t.star = nil
	case "#":
		t.hash = nil
	default:
		delete(t.words, word)
	}
}

// matching is the set of nodes that a key has reached so far. Following all of them word by word bounds the work by words × nodes,
// where trying one after the other could take exponential time with a few # in a key.
type matching struct {
	mark      uint64
	now, next []*topic
}

func (m *matching) reach(t *topic) {
	for t != nil && t.mark != m.mark {
		t.mark = m.mark
		m.next = append(m.next, t)
		t = t.hash // which may stand for no words
	}
}

func (m *matching) turn() {
	m.now, m.next = m.next, m.now[:0]
	m.mark++
}

// topic follows a key through a trie, visits what is bound there and says how many bindings that were.
func (r *Router) topic(root *topic, key string) int {
	m := &r.matching
	m.next = m.next[:0]
	m.mark++
	m.reach(root)
	m.turn()
	for more := key != ""; more; {
		var word string
		word, key, more = strings.Cut(key, ".")
		for _, t := range m.now {
			if t.loops {
				m.reach(t)
			}
			m.reach(t.words[word])
			m.reach(t.star)
		}
		m.turn()
	}
	n := 0
	for _, t := range m.now {
		n += r.visitAll(t.here)
	}
	return n
}
