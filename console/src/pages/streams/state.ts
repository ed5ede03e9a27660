/** The state of a live stream in a word. */

import { known } from '../../lib/i18n.svelte';
import type { Row } from '../../lib/types';
import { figure, text } from '../parts/live-list.svelte';

/** A source that has sent nothing for this long, in s, is silent: the server counts such times as pauses, too. */
const SILENT_S = 2;

/** The state by the server's name, or `silent`. */
export const nameOf = (row: Row): string => (text(row, 'state') === 'live' && (figure(row, 'idle_s') ?? 0) >= SILENT_S ? 'silent' : text(row, 'state'));

export const stateOf = (row: Row): string => known(`streams.state.${nameOf(row)}`, nameOf(row));
