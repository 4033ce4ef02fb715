// Keeps a page as the node sees it now. The server sends the page anew; what differs is changed in place, so that focus, selection and
// opened details stay. Without this file every page can be read and reloaded.
(() => {
  'use strict';

  const lost = document.getElementById('lost');
  const why = document.getElementById('lost-why');
  const said = document.getElementById('said');
  const patience = 3000; // milliseconds without an answer before that is said
  let source = null;
  let retry = 0;
  let silence = 0;

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute('data-key') || node.id : '');
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  // later is the node from at on that stands for the same thing as want.
  function later(at, want) {
    while (at && !alike(at, want)) at = at.nextSibling;
    return at;
  }

  function attributes(to, from) {
    for (const a of [...to.attributes]) {
      if (!from.hasAttribute(a.name) && !(to.nodeName === 'DETAILS' && a.name === 'open')) to.removeAttribute(a.name);
    }
    for (const a of from.attributes) {
      if (to.getAttribute(a.name) !== a.value) to.setAttribute(a.name, a.value);
    }
  }

  // change makes the node "to" like the node "from", and keeps it.
  function change(to, from) {
    if (to.nodeType !== Node.ELEMENT_NODE) {
      if (to.nodeValue !== from.nodeValue) to.nodeValue = from.nodeValue;
      return;
    }
    if (to === document.activeElement && /^(INPUT|SELECT)$/.test(to.nodeName)) return;
    attributes(to, from);
    let at = to.firstChild;
    for (const want of [...from.childNodes]) {
      let have = at;
      if (have && !alike(have, want)) {
        have = keyOf(want) ? later(at, want) : null;
        if (have) to.insertBefore(have, at);
      }
      if (have) {
        if (have === at) at = at.nextSibling;
        change(have, want);
      } else {
        to.insertBefore(want, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(text) {
    const holder = document.createElement('template');
    holder.innerHTML = text;
    const from = holder.content.getElementById('root');
    const to = document.getElementById('root');
    if (!from || !to) return;
    const before = to.dataset.say;
    change(to, from);
    document.title = to.dataset.title;
    if (to.dataset.say !== before) said.textContent = to.dataset.say;
  }

  function answered() {
    clearTimeout(silence);
    silence = setTimeout(() => missing('It has been silent for some seconds.'), 4 * patience);
    lost.hidden = true;
    document.body.classList.add('live');
  }

  function missing(text) {
    why.textContent = text;
    lost.hidden = false;
    document.body.classList.remove('live');
  }

  function open() {
    close();
    // The address is taken as it is: a name in it may be bytes that are no text.
    source = new EventSource(location.pathname + (location.search ? location.search + '&' : '?') + 'live');
    source.addEventListener('root', (e) => {
      answered();
      show(e.data);
    });
    source.addEventListener('at', (e) => { // nothing else has changed
      answered();
      const at = document.getElementById('at');
      if (at) at.textContent = e.data;
    });
    source.addEventListener('fault', (e) => {
      answered();
      missing(e.data);
    });
    source.onerror = () => {
      clearTimeout(silence);
      silence = setTimeout(() => missing('It may be down, or out of reach.'), patience);
      if (source.readyState === EventSource.CLOSED) {
        clearTimeout(retry);
        retry = setTimeout(open, patience);
      }
    };
  }

  function close() {
    clearTimeout(retry);
    clearTimeout(silence);
    if (source) source.close();
    source = null;
  }

  // A browser keeps few connections to one host, so pages that nobody sees let go of theirs.
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  window.addEventListener('pagehide', close);
  window.addEventListener('pageshow', (e) => e.persisted && open());
  if (!document.hidden) open();
})();
