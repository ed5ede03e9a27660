"""The plot: CPU time per request as a multiple of the floor's, one band per workload, one lane per server.

Plain SVG, without dependencies, legible in light and dark mode. The scale is logarithmic, so that equal ratios are equal
distances.
"""

import math
from pathlib import Path
from xml.sax.saxutils import escape

from .figures import Ratio, Section

# (server, CSS class, shape), in the order of the lanes
LANES = (
    ("encke epoll-edge", "edge", "circle"),
    ("encke uring", "uring", "circle"),
    ("encke epoll-level", "level", "circle"),
    ("encke poll", "poll", "circle"),
    ("nginx", "nginx", "square"),
    ("h2o", "h2o", "diamond"),
    ("lighttpd", "lighttpd", "triangle"),
)
TITLE = "CPU time per request, as a multiple of the floor’s"
EXPLANATION = ("logarithmic; dot: median of the rounds’ ratios, line: its 95 % interval; 1× is bench/floor/epl.c, "
               "left is better")
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 920, 250, 30, 92, 44
INNER = WIDTH - LEFT - RIGHT
LANE, GAP = 9, 16
TICKS = (0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TICK_DISTANCE = 30

# (selector, property, light, dark): plain colours, because not every viewer of SVG knows CSS variables
COLOURS = (
    (".page", "fill", "#ffffff", "#14171b"),
    (".band", "fill", "#f4f5f7", "#1c2026"),
    ("text", "fill", "#1b1f24", "#e8eaed"),
    (".small", "fill", "#6b7480", "#98a2ae"),
    (".grid", "stroke", "#d8dce1", "#333a43"),
    (".floor", "stroke", "#1b1f24", "#e8eaed"),
    (".bar", "stroke", "#d01c2a", "#ff6b6b"),
    *((f".{css} {mark}", of, light, dark)
      for css, light, dark in (("edge", "#1f5fd6", "#6ea8ff"), ("uring", "#c86400", "#ffb057"),
                               ("level", "#0b877d", "#3fd0c2"), ("poll", "#8a3fd1", "#c79bff"),
                               ("nginx", "#1b1f24", "#e8eaed"), ("h2o", "#6b7480", "#98a2ae"),
                               ("lighttpd", "#6b7480", "#98a2ae"))
      for mark, of in ((".mark", "fill"), (".whisker", "stroke"))),
)
FORM = """
  text { font: 13px system-ui, sans-serif }
  text.small { font-size: 11px }
  text.title { font-size: 16px; font-weight: 600 }
  .bar { stroke-width: 2.5 }
  .whisker { stroke-width: 1.5 }
"""


def write_plot(path: Path, sections: list[Section], caption: str) -> bool:
    """Draws the sections that have ratios to the floor. Returns false if there are none."""
    drawn = [section for section in sections if section.points]
    if not drawn:
        return False
    path.write_text(_svg(drawn, caption))
    return True


def _svg(sections: list[Section], caption: str) -> str:
    lanes = [lane for lane in LANES if any(lane[0] in section.points for section in sections)]
    band = len(lanes) * LANE + 8
    bottom = TOP + len(sections) * (band + GAP)
    scale = _scale(sections)
    tops = [TOP + index * (band + GAP) for index in range(len(sections))]
    parts = [f'<text class="title" x="20" y="28">{TITLE}</text>',
             f'<text class="small" x="20" y="46">{escape(caption)}</text>',
             *_legend(lanes),
             *[f'<rect class="band" x="{LEFT}" y="{top}" width="{INNER}" height="{band}"/>' for top in tops],
             *_axis(scale, bottom)]
    for section, top in zip(sections, tops, strict=True):
        parts += _band(section, lanes, scale, top, band)
    parts.append(_line("floor", scale(1), TOP - 8, bottom - GAP + 4))
    height = bottom + BOTTOM
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{TITLE}">\n<style>{_style()}</style>\n'
            f'<rect class="page" width="{WIDTH}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n")


def _scale(sections: list[Section]):
    """Returns a function from a ratio to an x position."""
    ends = [end for section in sections for ratio in section.points.values() for end in (ratio.low, ratio.high)]
    ends += [section.floor_bar for section in sections if section.floor_bar]
    low, high = math.log(min([0.95, *ends]) * 0.97), math.log(max(ends) * 1.08)
    return lambda ratio: LEFT + (math.log(ratio) - low) / (high - low) * INNER


def _axis(scale, bottom: int) -> list[str]:
    parts: list[str] = []
    placed: list[float] = []
    for tick in sorted(TICKS, key=lambda tick: tick != 1):  # 1 is placed first, others if there is room
        x = scale(tick)
        if not LEFT <= x <= WIDTH - RIGHT or any(abs(x - other) < TICK_DISTANCE for other in placed):
            continue
        placed.append(x)
        parts.append(_line("grid", x, TOP - 8, bottom - GAP + 4))
        parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 6}" text-anchor="middle">{tick:g}×</text>')
    parts.append(f'<text class="small" x="{LEFT}" y="{bottom + 26}">{EXPLANATION}</text>')
    return parts


def _band(section: Section, lanes, scale, top: float, height: float) -> list[str]:
    parts = [f'<text x="{LEFT - 12}" y="{top + height / 2 + 4:.1f}" text-anchor="end">{escape(section.title)}</text>']
    if section.floor_bar:
        parts.append(_line("bar", scale(section.floor_bar), top, top + height))
    for index, (server, css, shape) in enumerate(lanes):
        if server in section.points:
            parts.append(_point(section.points[server], server, css, shape, scale, top + 4 + LANE * (index + 0.5)))
    return parts


def _point(ratio: Ratio, server: str, css: str, shape: str, scale, y: float) -> str:
    return (f'<g class="{css}"><title>{escape(server)}: {ratio}</title>'
            f'<path class="whisker" d="M{scale(ratio.low):.1f} {y:.1f}H{scale(ratio.high):.1f}"/>'
            f'{_mark(shape, scale(ratio.median), y)}</g>')


def _line(css: str, x: float, top: float, bottom: float) -> str:
    return f'<path class="{css}" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'


def _mark(shape: str, x: float, y: float) -> str:
    if shape == "circle":
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    corners = {"square": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
               "diamond": ((0, -4.8), (4.8, 0), (0, 4.8), (-4.8, 0)),
               "triangle": ((0, -4.5), (4.5, 3.6), (-4.5, 3.6))}[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="mark" points="{points}"/>'


def _legend(lanes) -> list[str]:
    parts, x = [], 24.0
    for server, css, shape in lanes:
        parts.append(f'<g class="{css}">{_mark(shape, x, 66)}<text x="{x + 9:.1f}" y="70">{escape(server)}</text></g>')
        x += 26 + 7.2 * len(server)
    parts.append(f'{_line("bar", x, 59, 73)}<text x="{x + 8:.1f}" y="70">bar for Encke</text>')
    return parts


def _style() -> str:
    light = "\n".join(f"  {selector} {{ {of}: {colour} }}" for selector, of, colour, _ in COLOURS)
    dark = "\n".join(f"    {selector} {{ {of}: {colour} }}" for selector, of, _, colour in COLOURS)
    return f"{FORM}{light}\n  @media (prefers-color-scheme: dark) {{\n{dark}\n  }}\n"
