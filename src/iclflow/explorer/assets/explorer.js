// What the browser does alone. No science: it shows numbers and words that the server computed.
(function () {
  "use strict";
  const TIMED = ["loss", "gains", "values"];
  const graph = (id) => document.querySelector("#" + id + " .js-plotly-plot");
  const skip = () => window.dash_clientside.no_update;

  function place(data, cursor) {
    // The cursor runs from 0 to 1000 over the kept times, which are closest where something happens.
    const last = data.time.length - 1;
    return Math.max(0, Math.min(last, Math.round((Number(cursor) / 1000) * last)));
  }

  // The cursor is a line of its own over each plot: to redraw three plots for it would take longer than theory does.
  function mark(time) {
    for (const id of TIMED) {
      const plot = graph(id);
      if (!plot || !plot._fullLayout) continue;
      if (plot.cursorTime === undefined) {
        plot.on("plotly_afterplot", () => { moveLine(plot); makeRoom(plot); });
        plot.on("plotly_relayout", () => follow(plot));
      }
      plot.cursorTime = time;
      moveLine(plot);
    }
  }

  // What is zoomed in one picture over time is zoomed in all of them.
  function follow(zoomed) {
    const { range, type } = zoomed._fullLayout.xaxis;
    for (const plot of TIMED.map(graph)) {
      const axis = plot && plot._fullLayout && plot._fullLayout.xaxis;
      if (!axis || plot === zoomed || axis.type !== type || String(axis.range) === String(range)) continue;
      window.Plotly.relayout(plot, { "xaxis.range": range.slice() });
    }
  }

  // On a narrow screen the legend has more lines than the margin below the axis has room for.
  function makeRoom(plot) {
    const legend = plot.querySelector(".legend"), below = plot._fullLayout.margin.b;
    const needed = legend ? Math.ceil(legend.getBBox().height) + 56 : 0;
    if (needed > below) window.Plotly.relayout(plot, { "margin.b": needed });
  }

  function moveLine(plot) {
    const across = plot._fullLayout.xaxis, up = plot._fullLayout.yaxis;
    let line = plot.querySelector(".cursor-line");
    if (!line) {
      line = document.createElement("div");
      line.className = "cursor-line";
      plot.querySelector(".svg-container").appendChild(line);
    }
    const x = across.d2p(plot.cursorTime);
    line.hidden = !(x >= 0 && x <= across._length);
    line.dataset.time = plot.cursorTime;
    Object.assign(line.style, { left: across._offset + x + "px", top: up._offset + "px", height: up._length + "px" });
  }

  const isDark = () => {
    const chosen = document.documentElement.dataset.scheme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  };
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    window.dash_clientside.set_props("dark", { data: isDark() }));

  function drawn(figure, name, rows) {
    const size = Math.max(1, rows.length), high = Math.max(0.5, ...rows.flat().map(Math.abs));
    const layout = Object.assign({}, figure.layout, { title: Object.assign({}, figure.layout.title, { text: name }) });
    const rowsAre = name.includes("atrix") ? "eigenvector" : "head";
    layout.yaxis = Object.assign({}, layout.yaxis, { title: { text: rowsAre }, dtick: size > 12 ? 5 : 1, range: [size + 0.5, 0.5], autorange: false });
    const columns = rows[0].map((_, i) => i + 1), lines = rows.map((_, i) => i + 1);
    const scale = [[0, "#D55E00"], [0.5, isDark() ? "#26262d" : "#f4f4f4"], [1, "#0072B2"]];
    const image = Object.assign({}, figure.data[0], { z: rows, x: columns, y: lines, zmin: -high, zmax: high, colorscale: scale });
    return { data: [image], layout: layout };
  }

  // Until a new run is there the maps are faded with the rest; where none will come they are empty.
  const emptied = (figure) => ({ data: [Object.assign({}, figure.data[0], { z: [[null]] })], layout: figure.layout });

  const round = (x) => (x >= 1000 ? x.toPrecision(4) : x.toPrecision(3));
  const titles = { key: "Keys at the cursor", query: "Queries at the cursor",
    "key-query": "Key-query matrix of the strongest head", effective: "Effective matrix at the cursor" };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    iclflow: {
      readouts: (heads, rank, dim, context, exponent, init, lr, noise, tasks, samples, seeds, seed, layers, decay, length) => {
        const power = (x) => (10 ** Number(x)).toPrecision(2);
        return [heads, rank, dim, context, Number(exponent).toFixed(2), String(Number(power(init))),
          String(Number(power(lr))), Number(noise).toFixed(2), Number(tasks).toFixed(1),
          String(Number((10 ** Number(samples)).toPrecision(2))), seeds, seed, layers,
          Number(decay) <= -5 ? "none" : String(Number(power(decay))), String(Number((10 ** Number(length)).toPrecision(2)))].map(String);
      },
      visible: (model, spectrum, rule, data, tasks, dim, layers, optimizer, decay) => {
        const show = (yes) => (yes ? "control" : "control hidden"), free = (yes) => (yes ? "control" : "control off");
        const small = Number(dim) <= 3, deep = small && Number(layers) > 1, sampled = data === "sample" && !deep;
        const stepwise = deep || sampled || optimizer !== "sgd";
        const given = deep || Number(decay) > -5 || ["adam", "muon"].includes(optimizer);
        return [show(model === "separate"), show(spectrum === "power"), show(rule === "descent" || stepwise),
          show(sampled), show(tasks === "power"), show(given), free(small), free(!stepwise), free(!deep),
          spectrum === "free" ? "free d-" + dim : "free hidden"];
      },
      // An answer about a former job can come in late and paint over the present one: then the page asks on.
      idle: (job, sent) => !job || (!!sent && sent.token === job && sent.everything),
      look: (cursor, detail, theory, dark, first, second) => {
        const data = detail || theory;  // a change takes the detail away until the new one is there
        if (!data || !data.time || !data.time.length) return [skip(), skip(), skip(), skip(), skip()];
        const clock = (theory && theory.clock) || "t/τ";
        const i = place(data, cursor), time = data.time[i], words = clock + " = " + round(time);
        mark(time);
        document.getElementById("cursor").setAttribute("aria-valuetext", words + ": " + data.sentences[i]);
        const names = data.algorithms && data.algorithms.length ? data.algorithms[i] : "…";
        if (!data.maps) {
          const coming = document.getElementById("pictures").classList.contains("faded");
          return [data.sentences[i], "…", words, coming ? skip() : emptied(first), coming ? skip() : emptied(second)];
        }
        const [one, two] = Object.keys(data.maps);
        return [data.sentences[i], names, words, drawn(first, titles[one], data.maps[one][i]),
          drawn(second, titles[two], data.maps[two][i])];
      },
      // The curves of a state fade as soon as a control leaves it, whenever the answer comes.
      fade: () => "columns faded",
      same: (slider, number) => {
        const id = window.dash_clientside.callback_context.triggered[0].prop_id;
        const value = id.startsWith("number") ? number : slider;
        return value === null || value === "" || value === undefined ? [skip(), skip()] : [value, value];
      },
      axes: (which, loss, gains, values, theory) => {
        if (!loss || !theory || !theory.time) return [skip(), skip(), skip()];
        const ends = loss.data.map((trace) => (trace.x && trace.x.length ? Number(trace.x[trace.x.length - 1]) : 0));
        const high = Math.max(theory.time[theory.time.length - 1], ...ends), [low, top] = theory.levels;
        const axis = (old, log, from, to, start) => Object.assign({}, old, { type: log ? "log" : "linear", dtick: null,
          range: log ? [Math.log10(from), Math.log10(to)] : [start, to], autorange: false });
        const timed = (figure, more) => ({ data: figure.data, layout: Object.assign({}, figure.layout, {
          xaxis: axis(figure.layout.xaxis, which.includes("time"), theory.time[0], high, 0) }, more) });
        const log = which.includes("loss"), up = axis(loss.layout.yaxis, log, 0.7 * low, (log ? 1.2 : 1.08) * top, 0);
        return [timed(loss, { yaxis: up }), timed(gains, {}), timed(values, {})];
      },
      film: (_, cursor) => (Number(cursor) >= 1000 ? 0 : Math.min(1000, Number(cursor) + 8)),
      play: (_, stopped) => {
        document.getElementById("play").setAttribute("aria-pressed", String(stopped));
        document.getElementById("sentence").setAttribute("aria-live", stopped ? "off" : "polite");  // not ten times a second
        return [!stopped, stopped ? "Pause" : "Play"];
      },
      clicked: (click, detail) => {
        if (!click || !detail || !detail.time) return skip();
        const x = click.points[0].x, distance = detail.time.map((t) => Math.abs(Math.log((t + 1e-9) / (x + 1e-9))));
        return Math.round((distance.indexOf(Math.min(...distance)) / (detail.time.length - 1)) * 1000);
      },
      address: (told, chosen) => {
        if (!told) return skip();
        window.history.replaceState(null, "", window.location.pathname + told.query);
        // The menu keeps the preset that is on screen; the same saved run can be chosen again.
        if ((chosen || null) !== told.preset) window.dash_clientside.set_props("preset", { value: told.preset });
        window.dash_clientside.set_props("saved", { value: null });
        return skip();
      },
      copy: (link, command, python, line, code) => {
        const what = window.dash_clientside.callback_context.triggered[0].prop_id.split(".")[0];
        const text = { "copy-link": window.location.href, "copy-command": line, "copy-python": code }[what];
        const old = () => {  // where the clipboard is not allowed, selecting still is
          const area = document.createElement("textarea");
          area.value = text; document.body.appendChild(area); area.select(); document.execCommand("copy"); area.remove();
        };
        if (navigator.clipboard) navigator.clipboard.writeText(text).catch(old); else old();
        return "copied: " + text.split("\n")[0].slice(0, 60) + (text.length > 60 ? "…" : "");
      },
      picture: () => {
        const kind = window.dash_clientside.callback_context.triggered[0].prop_id.split(".")[0].slice(5);
        window.Plotly.downloadImage(graph("loss"), { format: kind, filename: "iclflow", width: 900, height: 520 });
        return skip();
      },
      scheme: (clicks) => {
        if (clicks) document.documentElement.dataset.scheme = isDark() ? "light" : "dark";
        return isDark();
      },
    },
  });
})();
