// Keeps a page current. Every page works without this script: tabs are links, actions are forms.
"use strict";
(() => {
  const root = document.documentElement;
  let theme = null;
  try { theme = localStorage.getItem("theme"); } catch { /* Storage may be off. */ }
  if (theme) root.dataset.theme = theme;
  root.classList.add("js");

  const $ = (id) => document.getElementById(id);
  const clock = (date) => date.toTimeString().slice(0, 5);

  function switchTheme() {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme:dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* As above. */ }
  }

  // Times that count on between messages, in the formats of the server.
  function span(s, hasSeconds) {
    const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
    return s >= 86400 ? `${Math.floor(s / 86400)}d${h % 24}h` : h ? `${h}h${m}m` : !m ? `${s}s` : hasSeconds ? `${m}m${s % 60}s` : `${m}m`;
  }
  const ago = (s) => (s < 60 ? "just now" : s < 7200 ? `${Math.floor(s / 60)} min ago` : s < 172800 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} days ago`);
  function tick() {
    if (document.hidden) return;
    for (const el of document.querySelectorAll("[data-since],[data-until]")) {
      const { since, until, unit } = el.dataset;
      const s = Math.max(0, Math.floor((until ? until - Date.now() : Date.now() - since) / 1000));
      const text = unit === "ago" ? ago(s) : span(s, unit === "s");
      if (el.textContent !== text) el.textContent = text;
    }
  }

  // Makes `old` like `fresh` without touching what a person changed: text, open details, focus.
  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id && fresh.id && old.id !== fresh.id)) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.isEqualNode(fresh) || old.nodeName === "TEXTAREA") return;
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open" && name !== "data-kept" && name !== "aria-busy") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (name === "open" && old.dataset.kept) continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const byId = new Map([...old.children].filter((el) => el.id).map((el) => [el.id, el]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const known = next.id && byId.get(next.id);
      if (known) {
        if (known !== at) old.insertBefore(known, at); else at = at.nextSibling;
        morph(known, next);
      } else if (at && !(at.id && !next.id) && !at.id && at.nodeName === next.nodeName) {
        const current = at;
        at = at.nextSibling;
        morph(current, next);
      } else old.insertBefore(next, at);
    }
    while (at) { const rest = at.nextSibling; at.remove(); at = rest; }
  }

  function parse(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  // The follow rule: at the end, the page stays at the end; above it, nothing moves.
  let unseen = 0;
  const isActivity = () => $("log") !== null;
  const isAtEnd = () => window.innerHeight + window.scrollY >= root.scrollHeight - 80;
  let follows = false;
  function toEnd() {
    window.scrollTo(0, root.scrollHeight);
    unseen = 0;
    showFollow();
  }
  function showFollow() {
    if (!isActivity()) return;
    // Keeps its height, so that showing it does not move the end.
    $("follow").hidden = false;
    $("follow").classList.toggle("off", !follows);
    $("new").hidden = follows || unseen === 0;
    $("new").textContent = `${unseen} new ↓`;
  }

  function apply(update) {
    document.title = (update.title ? update.title + " · " : "") + "ralph";
    if (update.say) $("say").textContent = update.say;
    let added = 0;
    const isFirst = !apply.hasRun;
    // The event of a scroll may still be on its way.
    follows = follows && isAtEnd();
    apply.hasRun = true;
    for (const part of update.parts) {
      const old = $(part.id);
      if (old && !part.new) morph(old, parse(part.html));
      else if (!old && part.into && $(part.into)) {
        $(part.into).append(parse(part.html));
        if (part.id[0] === "e") added++;
      } else if (!old && !part.into) { location.reload(); return; }
    }
    markBars();
    tick();
    if (!isActivity()) return;
    if (follows) toEnd();
    else if (!isFirst) { unseen += added; showFollow(); }
  }

  // live, reconnecting… after 3 s, then gone.
  let source, lastSeen = new Date(), lateTimer;
  function setState(state) {
    const el = $("live");
    el.hidden = false;
    if (el.dataset.state === state) return;
    el.dataset.state = state;
    el.textContent = state === "live" ? "live" : state === "late" ? "reconnecting…" : `server is gone, last seen ${clock(lastSeen)}`;
  }
  function connect() {
    const url = document.body.dataset.live;
    if (!url) return;
    source = new EventSource(url);
    source.onopen = () => { clearTimeout(lateTimer); lateTimer = 0; lastSeen = new Date(); setState("live"); };
    source.addEventListener("update", (event) => { lastSeen = new Date(); apply(JSON.parse(event.data)); });
    source.onerror = () => {
      if (!lateTimer) {
        lateTimer = setTimeout(() => { setState("late"); lateTimer = setTimeout(() => setState("gone"), 12000); }, 3000);
      }
      if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 1500); }
    };
  }

  function markBars() {
    const bars = document.querySelector(".bars");
    if (bars && !bars.dataset.touched) bars.scrollLeft = bars.scrollWidth;
  }

  // Sends a form without leaving the page. Text is kept if it fails.
  async function submit(form, button) {
    const data = new URLSearchParams(new FormData(form));
    if (button && button.name) data.set(button.name, button.value);
    const note = noteOf(form);
    note.textContent = form.dataset.say + "…";
    note.classList.remove("bad");
    let answer;
    try {
      const response = await fetch(form.action, { method: "POST", body: data, headers: { Accept: "application/json" } });
      answer = await response.json();
    } catch { answer = { error: "the server does not answer", hint: "Nothing was sent." }; }
    if (answer.error) {
      note.textContent = [answer.error, answer.hint].filter(Boolean).map((it) => it[0].toUpperCase() + it.slice(1)).join(". ");
      note.classList.add("bad");
      return;
    }
    if (answer.run) { location.href = `${document.body.dataset.base}/runs/${answer.run}`; return; }
    note.textContent = answer.requested;
    for (const field of form.querySelectorAll("textarea")) field.value = "";
    closeDialog();
    expectAnswer(note, answer.requested);
  }
  function noteOf(form) {
    const own = form.querySelector(".told");
    if (own) return own;
    const note = document.createElement("p");
    note.className = "sub told";
    note.setAttribute("role", "status");
    form.append(note);
    return note;
  }
  // A request is confirmed by an event, which redraws the form.
  function expectAnswer(note, text) {
    if (!/ing$/.test(text)) return;
    setTimeout(() => { if (note.isConnected && note.textContent === text) note.textContent = `${text}: no answer from the run yet`; }, 5000);
  }

  let dialog;
  function closeDialog() { if (dialog) { dialog.close(); dialog.remove(); dialog = null; } }
  async function openDialog(url) {
    const page = new DOMParser().parseFromString(await (await fetch(url)).text(), "text/html");
    const box = page.getElementById("stopbox");
    if (!box) { location.href = url; return; }
    showDialog(box.childNodes, "dlg");
    // A key that was pressed before the dialog came must not choose.
    dialog.inert = true;
    setTimeout(() => { if (dialog) { dialog.inert = false; dialog.querySelector("button").focus(); } }, 300);
  }
  function showDialog(nodes, label) {
    closeDialog();
    dialog = document.createElement("dialog");
    dialog.setAttribute("aria-labelledby", label);
    dialog.append(...nodes);
    document.body.append(dialog);
    dialog.addEventListener("close", () => closeDialog());
    dialog.showModal();
  }

  const HELP = [["j k", "next, previous run"], ["Enter", "open"], ["/", "search the page's runs"], ["i", "tell the agent"], ["a", "answer"], ["p", "pause"], ["r", "resume"], ["x", "stop, asks first"], ["n", "new run"], ["Esc", "close, leave a field"], ["?", "this help"]];
  function showHelp() {
    const help = parse('<div><h2 id="helph">Keys</h2><dl class="keys"></dl><button class="btn leave" type="button">Close</button></div>');
    for (const [key, text] of HELP) {
      const row = parse("<div><dt><kbd></kbd></dt><dd></dd></div>");
      row.querySelector("kbd").textContent = key;
      row.querySelector("dd").textContent = text;
      help.querySelector("dl").append(row);
    }
    help.querySelector("button").onclick = closeDialog;
    showDialog([...help.childNodes], "helph");
  }
  function showSearch() {
    const box = parse('<div><h2 id="findh">Find a run</h2><label class="vh" for="find">Name or project</label><input id="find" type="search" autocomplete="off"></div>');
    const field = box.querySelector("input");
    field.oninput = () => {
      const wanted = field.value.toLowerCase();
      for (const row of document.querySelectorAll(".row")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    };
    field.onkeydown = (event) => { if (event.key === "Enter") { event.preventDefault(); closeDialog(); move(1); } };
    showDialog([...box.childNodes], "findh");
    field.focus();
  }

  function say(text) { $("say").textContent = ""; $("say").textContent = text; }
  function move(step) {
    const links = [...document.querySelectorAll("#needs .who a, .row:not([hidden]) > a")];
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
    if (next) next.focus();
  }
  function press(id, why) { const el = $(id); if (el) el.click(); else say(why); }
  function focusField(selector, why) {
    const field = document.querySelector(selector);
    if (field) field.focus(); else say(why);
  }
  function onKey(event) {
    if (event.key === "Escape" && document.activeElement !== document.body) document.activeElement.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || dialog || event.target.closest("input,textarea,select")) return;
    const keys = {
      j: () => move(1), k: () => move(-1), "?": showHelp,
      "/": () => (document.querySelector(".row") ? showSearch() : say("nothing to search here")),
      i: () => focusField("#tell", "open a run to tell its agent something"),
      a: () => focusField(".ask textarea", "no question is open"),
      p: () => press("b-pause", "nothing to pause here"), r: () => press("b-resume", "nothing to resume here"),
      x: () => press("b-stop", "nothing to stop here"), n: () => press("b-new", "this link is read-only"),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = $("theme");
    if (button) { button.hidden = false; button.onclick = switchTheme; }
    if (isActivity()) {
      const hasTarget = location.hash && document.getElementById(location.hash.slice(1));
      follows = !hasTarget && !new URLSearchParams(location.search).has("from") && isAtEnd();
      $("new").onclick = () => { follows = true; toEnd(); };
      addEventListener("scroll", () => {
        follows = isAtEnd();
        if (follows) unseen = 0;
        showFollow();
      }, { passive: true });
      showFollow();
    }
    const current = document.querySelector(".tabs [aria-current]");
    if (current) current.parentNode.scrollLeft = current.offsetLeft - current.parentNode.clientWidth / 2 + current.clientWidth / 2;
    markBars();
    tick();
    setInterval(tick, 1000);
    connect();
    // A phone that wakes up may have lost its connection without an error.
    document.addEventListener("visibilitychange", () => {
      tick();
      if (!document.hidden && source && source.readyState === EventSource.CLOSED) connect();
    });
    addEventListener("pagehide", () => source && source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
    document.addEventListener("keydown", onKey);
    document.addEventListener("toggle", (event) => { event.target.dataset.kept = "1"; }, true);
    document.addEventListener("submit", (event) => {
      if (!event.target.dataset.say) return;
      event.preventDefault();
      submit(event.target, event.submitter);
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link) return;
      if (link.id === "b-stop") { event.preventDefault(); openDialog(link.href); }
      if (dialog && link.classList.contains("leave")) { event.preventDefault(); closeDialog(); }
    });
    document.addEventListener("keydown", (event) => {
      // In a text field, Enter sends and Shift+Enter makes a new line.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.matches("form[data-say] textarea[rows='1']")) {
        event.preventDefault();
        event.target.form.requestSubmit();
      }
    });
  });
})();
