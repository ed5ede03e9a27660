/** Cells of lists whose columns the page does not know: the end of a column's name says what its numbers are. */

import { bitRate, bytes, duration, known, latency, number, percent, rate, relative } from '../../lib/i18n.svelte';
import type { Column } from '../../lib/Table.svelte';
import type { Cell, Row } from '../../lib/types';

/** The text of a cell: seconds as a duration, bytes with a unit, moments as the time since then. */
export function cellText(column: string, cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return '';
  if (Array.isArray(cell)) return cell.map((each) => cellText(column, each)).join(', ');
  if (typeof cell !== 'number') return String(cell);
  if (column.endsWith('_ms')) return cell === 0 ? '' : relative(cell);
  if (column.endsWith('_bytes') || column === 'bytes') return bytes(cell);
  if (column === 'bit_rate') return bitRate(cell);
  if (/latency|^(wait|connect|first_byte)_s$/.test(column)) return latency(cell);
  if (/_s$|^age$/.test(column)) return duration(cell);
  if (/ratio$|^share$/.test(column)) return percent(cell, 1);
  if (/(^|_)rate$/.test(column)) return rate(cell);
  return number(cell, Number.isInteger(cell) ? 0 : 2);
}

/** The columns of rows. `first`: names in the order of display; `hidden`: only shown when chosen. */
export function columnsOf(catalog: string, rows: Row[], first: string[], hidden: string[] = []): Column<Row>[] {
  const names = new Set([...first.filter((name) => rows.some((row) => name in row)), ...rows.flatMap((row) => Object.keys(row))]);
  return [...names].map((key) => ({
    key,
    label: known(`${catalog}.column.${key}`, key.replace(/_(ms|s|bytes)$/, '').replaceAll('_', ' ')),
    text: (row: Row) => cellText(key, row[key]),
    number: rows.some((row) => typeof row[key] === 'number') && !key.endsWith('_ms'),
    hidden: hidden.includes(key),
  }));
}

/** Good, a warning or bad: the words for states that features use. */
export function tone(state: string): 'good' | 'warn' | 'bad' | '' {
  if (/^(up|ready|connected|live)\b/.test(state)) return 'good';
  if (/^(down|fail|ejected|killed|lost|disconnected)/.test(state)) return 'bad';
  if (/^(drain|slow|start|silent|fallback|stopping|waiting|not ready|lag)/.test(state)) return 'warn';
  return '';
}
