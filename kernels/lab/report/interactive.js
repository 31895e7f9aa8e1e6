"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const packed = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
  const inflated = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = JSON.parse(await new Response(inflated).text());

  // --- what was packed: runs of thread numbers, columns of values

  const unrun = (runs) => {
    const numbers = [];
    for (let i = 0; i < runs.length; i += 2)
      for (let k = 0; k < runs[i + 1]; k++) numbers.push(runs[i] + k);
    return numbers;
  };
  const value = (column, i) =>
    column[0] === "=" ? column[1] : column[0] === "+" ? column[1] + i * column[2] : column[i + 1];

  const WARP = 32, SECTOR = 32, BANKS = 32;
  const [bx, by, bz] = data.block;
  const threads = bx * by * bz;
  const warps = Math.ceil(threads / WARP);
  const steps = data.steps;
  const lastStep = new Int32Array(threads).fill(-1);
  steps.forEach((step, n) => {
    step.active = unrun(step.threads);
    step.isActive = new Set(step.active);
    for (const t of step.active) lastStep[t] = n;
    for (const change of step.changes) change[1] = unrun(change[1]);
    step.touches = step.touches.map(([op, array, runs, index, stored]) => ({
      op, array, lanes: unrun(runs).map((thread, i) => ({
        thread, index: value(index, i), stored: stored === null ? null : value(stored, i) })) }));
  });

  // --- the block after step `now`; steps are applied one by one, from the start when going back

  let now = -1, warp = 0, thread = 0;
  let registers, changed, memory, latest;

  const reset = () => {
    now = -1;
    registers = data.variables.map(() => new Array(threads).fill(undefined));
    changed = data.variables.map(() => new Int32Array(threads).fill(-1));
    latest = new Int32Array(threads).fill(-1);
    memory = data.arrays.map((array) => {
      const held = new Map();
      if (array.values) unrun(array.shown).forEach((i, k) => held.set(i, value(array.values, k)));
      return held;
    });
  };
  const apply = (n) => {
    const step = steps[n];
    for (const t of step.active) latest[t] = n;
    for (const [name, who, column] of step.changes)
      who.forEach((t, i) => { registers[name][t] = value(column, i); changed[name][t] = n; });
    for (const touch of step.touches)
      if (touch.op !== "load") for (const lane of touch.lanes) memory[touch.array].set(lane.index, lane.stored);
    now = n;
  };
  const kindOf = (t) => {
    if (steps[now].isActive.has(t)) return "active";
    const last = latest[t];
    if (last >= 0 && steps[last].barrier && steps[last].epoch === steps[now].epoch) return "waiting";
    if (last >= 0 && last === lastStep[t] && !data.cut) return "ended";
    return "idle";
  };

  // --- text

  const short = (v) => v === undefined ? "·" : typeof v === "number" && !Number.isInteger(v)
    ? String(Number(v.toPrecision(4))) : Array.isArray(v) ? "[" + v.map(short).join(" ") + "]" : String(v);
  const ranges = (numbers) => {
    const parts = [];
    for (const n of numbers) {
      const tail = parts[parts.length - 1];
      if (tail && n === tail[1] + 1) tail[1] = n; else parts.push([n, n]);
    }
    const text = parts.slice(0, 6).map(([a, b]) => a === b ? `${a}` : `${a} to ${b}`).join(", ");
    return parts.length > 6 ? text + ", …" : text;
  };
  const position = (index, shape) => {
    const parts = [];
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      parts.unshift(index % shape[axis]);
      index = Math.floor(index / shape[axis]);
    }
    return parts;
  };
  const threadIndex = (t) => [t % bx, Math.floor(t / bx) % by, Math.floor(t / (bx * by))];
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // --- the panels

  const showStatus = () => {
    const step = steps[now];
    const rest = [];
    for (const kind of ["waiting", "ended", "idle"]) {
      let count = 0;
      for (let t = 0; t < threads; t++) if (kindOf(t) === kind) count++;
      if (count) rest.push(`${count} ${kind === "idle" ? "inactive" : kind}`);
    }
    let text = `Step ${now + 1} of ${steps.length}: line ${step.line}, executed by ${step.active.length}`
      + ` thread${step.active.length > 1 ? "s" : ""} (${ranges(step.active)})`;
    if (rest.length) text += `; ${rest.join(", ")}`;
    if (step.barrier) text += `; ${step.barrier}`;
    if (now === steps.length - 1) {
      if (data.error) text += `. The kernel ends here: ${data.error}`;
      else if (data.cut) text += ". Longer runs are cut here";
    }
    $("status").textContent = text + ".";
  };

  const showSource = () => {
    for (const row of document.querySelectorAll("#source tr[aria-current]")) row.removeAttribute("aria-current");
    const row = $(`line-${steps[now].source}-${steps[now].line}`);
    if (row) { row.setAttribute("aria-current", "step"); row.scrollIntoView({ block: "nearest" }); }
  };

  const GLYPHS = { active: "●", waiting: "‖", ended: "×", idle: "·" };
  const WORDS = { active: "active", waiting: "waits at a barrier", ended: "ended", idle: "inactive" };
  const lanes = [];
  for (let w = 0; w < warps; w++) {
    const row = element("div", undefined, "warp");
    row.append(element("span", `warp ${w}`, "name"));
    for (let t = w * WARP; t < Math.min((w + 1) * WARP, threads); t++) {
      const lane = element("span", "", "lane");
      lane.setAttribute("aria-hidden", "true"); // the row's text says it
      lane.addEventListener("click", () => choose(t));
      row.append(lane);
      lanes.push(lane);
    }
    row.append(element("span", "", "count"));
    $("lanes").append(row);
  }
  const showThreads = () => {
    for (let w = 0; w < warps; w++) {
      const row = $("lanes").children[w];
      row.classList.toggle("chosen", w === warp);
      const counts = {};
      for (let t = w * WARP; t < Math.min((w + 1) * WARP, threads); t++) {
        const kind = kindOf(t);
        counts[kind] = (counts[kind] || 0) + 1;
        lanes[t].className = `lane ${kind}${t === thread ? " chosen" : ""}`;
        lanes[t].textContent = GLYPHS[kind];
        lanes[t].title = `thread ${t} (${threadIndex(t).join(", ")}): ${WORDS[kind]}`;
      }
      row.lastChild.textContent = Object.entries(counts)
        .map(([kind, n]) => `${n} ${kind === "idle" ? "inactive" : kind}`).join(", ");
    }
  };

  const showVariables = () => {
    const table = $("variables");
    table.replaceChildren();
    if (!data.variables.length) {
      table.append(element("caption", data.machineCode
        ? "a kernel of CUDA C runs as machine code: no variables are recorded" : "the kernel has none"));
      return;
    }
    const head = element("tr");
    const [x, y, z] = threadIndex(thread);
    for (const text of ["variable", `thread ${thread} (${x}, ${y}, ${z})`, `warp ${warp}`])
      head.append(element("th", text));
    table.append(head);
    data.variables.forEach((name, v) => {
      const row = element("tr");
      if (changed[v][thread] === now) row.className = "changed";
      const all = [];
      for (let t = warp * WARP; t < Math.min((warp + 1) * WARP, threads); t++) all.push(short(registers[v][t]));
      const known = all.filter((text) => text !== "·");
      if (!known.length && registers[v][thread] === undefined) return;
      const same = known.length === all.length && all.every((text) => text === all[0]);
      const text = same ? `all ${all[0]}` : all.length > 8
        ? `${all.slice(0, 4).join(", ")}, … ${all.slice(-2).join(", ")}` : all.join(", ");
      for (const cell of [name, short(registers[v][thread]), text]) row.append(element("td", cell));
      table.append(row);
    });
  };

  // --- lanes to addresses: sectors of global memory, banks of shared memory

  const addresses = (touch) => {
    const array = data.arrays[touch.array];
    return touch.lanes.filter((lane) => Math.floor(lane.thread / WARP) === warp).map((lane) => {
      const parts = position(lane.index, array.shape);
      const offset = parts.reduce((sum, part, axis) => sum + part * array.strides[axis], array.offset);
      return { lane: lane.thread % WARP, offset, index: lane.index };
    });
  };
  const pieces = (offset, size, width) => {
    const found = [];
    for (let p = Math.floor(offset / width); p <= Math.floor((offset + size - 1) / width); p++) found.push(p);
    return found;
  };
  const sectorsOf = (found, size) => {
    const sectors = [...new Set(found.flatMap(({ offset }) => pieces(offset, size, SECTOR)))];
    return sectors.sort((a, b) => a - b);
  };
  const wavefrontsOf = (found, size) => { // phases of 32, 16 or 8 lanes
    const phase = size <= 4 ? 32 : size <= 8 ? 16 : 8;
    let wavefronts = 0, ideal = 0, worst = 0;
    for (let first = 0; first < WARP; first += phase) {
      const banks = Array.from({ length: BANKS }, () => new Set());
      for (const { lane, offset } of found)
        if (lane >= first && lane < first + phase)
          for (const word of pieces(offset, size, 4)) banks[word % BANKS].add(word);
      const most = Math.max(...banks.map((words) => words.size));
      if (most) { wavefronts += most; ideal += 1; worst = Math.max(worst, most); }
    }
    return { wavefronts, ideal, worst };
  };
  const SVG = "http://www.w3.org/2000/svg";
  const svg = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, v] of Object.entries(attributes)) made.setAttribute(name, v);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const draw = (found, targets, targetsOf, label, name) => {
    const wide = 20, width = WARP * wide + 2, high = 120;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${high}`, width, height: high, role: "img" });
    picture.append(svg("title", {}, name));
    const shown = targets.slice(0, 64), each = (width - 2) / Math.max(shown.length, 1);
    const middle = (n, size) => 1 + (n + 0.5) * size;
    for (const access of found)
      for (const target of targetsOf(access)) {
        const to = shown.indexOf(target);
        if (to >= 0) picture.append(svg("line", { x1: middle(access.lane, wide), y1: 18,
          x2: middle(to, each), y2: 92, stroke: "var(--active)", "stroke-width": 1 }));
      }
    for (let lane = 0; lane < WARP; lane++) {
      const on = found.some((access) => access.lane === lane);
      picture.append(svg("rect", { x: 1 + lane * wide, y: 2, width: wide - 1, height: 15,
        fill: on ? "var(--read)" : "var(--idle)", stroke: "var(--rule)" }));
      picture.append(svg("text", { x: middle(lane, wide), y: 13, "text-anchor": "middle" }, lane));
    }
    shown.forEach((target, n) => {
      picture.append(svg("rect", { x: 1 + n * each, y: 93, width: each - 1, height: 15,
        fill: "var(--write)", stroke: "var(--rule)" }));
      if (each >= 16)
        picture.append(svg("text", { x: middle(n, each), y: 104, "text-anchor": "middle" }, label(target)));
    });
    return picture;
  };
  const showAccesses = () => {
    const panel = $("accesses");
    panel.replaceChildren();
    for (const touch of steps[now].touches) {
      const array = data.arrays[touch.array], found = addresses(touch), size = array.itemsize;
      if (!found.length) continue;
      const who = found.length === 1 ? "1 lane" : `${found.length} lanes`;
      const text = element("p", `${touch.op} of ${array.name} (${array.space}), ${who} of warp ${warp}: `);
      let facts, poor, picture;
      if (array.space === "global") {
        const sectors = sectorsOf(found, size), ideal = Math.ceil(found.length * size / SECTOR);
        poor = sectors.length > ideal;
        facts = `${sectors.length} sector${sectors.length === 1 ? "" : "s"} of 32 bytes, ideal ${ideal}`;
        picture = draw(found, sectors, ({ offset }) => pieces(offset, size, SECTOR),
          (sector) => sector * SECTOR, `lanes to sectors: ${facts}`);
      } else {
        const { wavefronts, ideal, worst } = wavefrontsOf(found, size);
        poor = wavefronts > ideal;
        facts = `${wavefronts} wavefront${wavefronts === 1 ? "" : "s"}, ideal ${ideal}` + (poor ? ` (${worst}-way bank conflict)` : "");
        picture = draw(found, [...Array(BANKS).keys()], ({ offset }) =>
          pieces(offset, size, 4).map((word) => word % BANKS), (bank) => bank, `lanes to banks: ${facts}`);
      }
      text.append(element("span", facts, poor ? "poor" : ""));
      text.append(array.space === "global" ? "; below: byte offsets of the sectors" : "; below: the 32 banks");
      panel.append(text, picture);
    }
    if (!panel.children.length) panel.append(element("p", `warp ${warp} accesses no array on this line`));
  };

  // --- arrays: a window of each, around what the chosen warp touches

  const ROWS = 16, COLUMNS = 32, FOLDED = 16; // a one-dimensional array is folded
  const windows = data.arrays.map(() => [0, 0]);
  const showArrays = () => {
    const panel = $("arrays");
    panel.replaceChildren();
    data.arrays.forEach((array, a) => {
      const size = array.shape.reduce((x, y) => x * y, 1);
      const width = array.shape.length > 1 ? array.shape[array.shape.length - 1] : Math.min(size, FOLDED);
      const height = Math.ceil(size / Math.max(width, 1));
      const touched = new Map();
      for (const touch of steps[now].touches) {
        if (touch.array !== a) continue;
        for (const lane of touch.lanes) {
          const seen = touched.get(lane.index) || { kind: "read", by: [] };
          if (touch.op !== "load") seen.kind = "write";
          seen.by.push(lane.thread);
          touched.set(lane.index, seen);
        }
      }
      const near = [...touched].find(([, seen]) => seen.by.some((t) => Math.floor(t / WARP) === warp));
      if (near) {
        const [row, column] = [Math.floor(near[0] / width), near[0] % width];
        const [top, left] = windows[a];
        if (row < top || row >= top + ROWS) windows[a][0] = Math.max(0, row - 2);
        if (column < left || column >= left + COLUMNS) windows[a][1] = Math.max(0, column - 2);
      }
      const [top, left] = windows[a];
      const shape = array.shape.join(" × ");
      panel.append(element("p", `${array.name}: ${array.dtype}, ${shape}, ${array.space} memory`));
      const table = element("table");
      table.setAttribute("aria-label", array.name);
      const head = element("tr");
      head.append(element("th"));
      for (let c = left; c < Math.min(left + COLUMNS, width); c++) head.append(element("th", c));
      table.append(head);
      for (let r = top; r < Math.min(top + ROWS, height); r++) {
        const row = element("tr");
        row.append(element("th", r * (array.shape.length > 1 ? 1 : width)));
        for (let c = left; c < Math.min(left + COLUMNS, width) && r * width + c < size; c++) {
          const index = r * width + c, held = memory[a].get(index), seen = touched.get(index);
          const cell = element("td", short(held), held === undefined ? "empty" : "");
          const where = `${array.name}[${position(index, array.shape).join(", ")}] = ${short(held)}`;
          cell.title = where;
          if (seen) {
            cell.classList.add(seen.kind);
            if (seen.by.includes(thread)) cell.classList.add("mine");
            cell.title += seen.kind === "read" ? "; read by " : "; written by ";
            cell.title += `thread${seen.by.length > 1 ? "s" : ""} ${ranges(seen.by)}`;
          }
          row.append(cell);
        }
        table.append(row);
      }
      const grid = element("div", undefined, "grid");
      grid.append(table);
      panel.append(grid);
    });
  };

  // --- going somewhere

  const show = () => {
    $("position").value = now + 1;
    $("warp").value = warp;
    $("thread").value = thread;
    showStatus(); showSource(); showThreads(); showVariables(); showAccesses(); showArrays();
  };
  const go = (n) => {
    n = Math.max(0, Math.min(n, steps.length - 1));
    if (n < now) reset();
    while (now < n) apply(now + 1);
    show();
  };
  const counts = (n) => !$("only").checked || steps[n].active.some((t) => Math.floor(t / WARP) === warp);
  const move = (by, stops) => {
    let n = now + by;
    while (n > 0 && n < steps.length - 1 && !(counts(n) && stops(n))) n += by;
    go(n);
  };
  const line = (by) => move(by, () => true);
  const barrier = (by) => move(by, (n) => steps[n].barrier !== "");
  const choose = (t) => {
    thread = Math.max(0, Math.min(t, threads - 1));
    warp = Math.floor(thread / WARP);
    show();
  };
  const at = (source, number) => (n) => steps[n].source === source && steps[n].line === number;
  const jump = ({ line: number, thread: t }, name) => {
    const wanted = [];
    steps.forEach((step, n) => {
      if (step.line !== number || !step.isActive.has(t)) return;
      const touches = step.touches.some((touch) => data.arrays[touch.array].name === name
        && touch.lanes.some((lane) => lane.thread === t));
      wanted.push([touches ? 0 : 1, n]);
    });
    wanted.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const fallback = steps.findIndex((step) => step.line === number);
    thread = t;
    warp = Math.floor(t / WARP);
    go(wanted.length ? wanted[0][1] : Math.max(fallback, 0));
  };

  const showFindings = () => {
    for (const finding of data.findings) {
      const box = element("div", undefined, "finding");
      box.append(element("div", `${finding.severity}: ${finding.text}`));
      for (const access of finding.accesses) {
        const button = element("button", `line ${access.line}: ${access.text}`);
        button.disabled = !access.here;
        if (!access.here) button.title = "in another block";
        button.addEventListener("click", () => jump(access, finding.array));
        box.append(button);
        const row = $(`line-0-${access.line}`);
        if (row) row.classList.add("touched");
      }
      box.append(element("div", `fix: ${finding.fix}`));
      $("findings").append(box);
    }
  };

  if (!steps.length) return;
  for (const id of ["controls", "state", "help"]) $(id).hidden = false;
  $("position").max = steps.length;
  $("thread").max = threads - 1;
  for (let w = 0; w < warps; w++) $("warp").append(new Option(w, w));
  const onClick = { first: () => go(0), last: () => go(steps.length - 1), back: () => line(-1),
    forward: () => line(1), "back-barrier": () => barrier(-1), "forward-barrier": () => barrier(1) };
  for (const [id, action] of Object.entries(onClick)) $(id).addEventListener("click", action);
  $("position").addEventListener("input", () => go($("position").value - 1));
  $("warp").addEventListener("change", () => choose($("warp").value * WARP));
  $("thread").addEventListener("change", () => choose(Number($("thread").value)));
  data.sources.forEach((source, s) => source.lines.forEach((_, i) => {
    const number = source.first + i;
    const row = $(`line-${s}-${number}`), here = at(s, number);
    if (!steps.some((_, n) => here(n))) return;
    const next = () => {
      const n = steps.findIndex((_, n) => n > now && here(n));
      go(n < 0 ? steps.findIndex((_, n) => here(n)) : n);
    };
    row.className = "ran";
    row.tabIndex = 0; // the keyboard comes to lines that were executed
    row.addEventListener("click", next);
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") next(); });
  }));
  document.addEventListener("keydown", (event) => {
    if (["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "checkbox") return;
    const keys = { Home: onClick.first, End: onClick.last,
      ArrowRight: () => event.shiftKey ? barrier(1) : line(1),
      ArrowLeft: () => event.shiftKey ? barrier(-1) : line(-1),
      "[": () => choose(Math.max(warp - 1, 0) * WARP), "]": () => choose(Math.min(warp + 1, warps - 1) * WARP),
      ",": () => choose(thread - 1), ".": () => choose(thread + 1) };
    if (keys[event.key] && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  showFindings();
  reset();
  go(0);
  document.body.dataset.ready = "yes";
})();
