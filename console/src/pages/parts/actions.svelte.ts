/** The actions that the server offers, and their runs. Pages know the names of verbs; fields and texts come from the server. */

import { get, send } from '../../lib/api';
import { confirm } from '../../lib/confirm.svelte';
import { known, t } from '../../lib/i18n.svelte';
import { asApiError, isAdmin } from '../../lib/session.svelte';
import { toast } from '../../lib/toast.svelte';
import type { ActionResult, FeatureVerbs, Row, Verb } from '../../lib/types';

const catalog: { features: FeatureVerbs[] | null; error: unknown } = $state({ features: null, error: null });
let loading = false;

/** Loads the verbs once per page load. */
export async function loadActions(): Promise<void> {
  if (loading || catalog.features !== null) return;
  loading = true;
  try {
    catalog.features = (await get<{ features: FeatureVerbs[] }>('/actions')).data.features;
    catalog.error = null;
  } catch (error) {
    catalog.error = error;
  } finally {
    loading = false;
  }
}

export const actionsError = (): unknown => catalog.error;

export function verbs(feature: string): Verb[] {
  return catalog.features?.find((each) => each.feature === feature)?.verbs ?? [];
}

export function verb(feature: string, name: string): Verb | undefined {
  return verbs(feature).find((each) => each.name === name);
}

/** Why nothing may be changed here, or `null`. */
export const denied = (): string | null => (isAdmin() ? null : t('parts.view_only'));

export const verbLabel = (feature: string, name: string): string => known(`parts.verb.${feature}.${name}.label`, known(`parts.verb.any.${name}`, name.replaceAll('_', ' ')));
export const verbHelp = (feature: string, each: Verb): string => known(`parts.verb.${feature}.${each.name}.help`, each.help);
export const fieldLabel = (name: string): string => known(`parts.field.${name}`, name.replaceAll('_', ' '));

/** Words that take something away from clients. Others need no warning colour. */
const DANGEROUS = /^(close|block|delete|disconnect|log_out|drain|restart|stop|end)/;
export const isDangerous = (name: string): boolean => DANGEROUS.test(name);

/** Runs an action and reports its result. Returns whether it succeeded. Throws no error: a toast shows it. */
export async function run(feature: string, name: string, values: Record<string, unknown>): Promise<boolean> {
  try {
    await perform(feature, name, values);
    return true;
  } catch (error) {
    const failure = asApiError(error);
    const details = failure.problem.errors?.map((each) => each.detail).join(' ');
    toast(t('parts.failed', { action: verbLabel(feature, name), reason: details || failure.problem.detail || failure.problem.title }), 'bad');
    return false;
  }
}

/** Runs an action and reports its success. Throws `ApiError`. */
export async function perform(feature: string, name: string, values: Record<string, unknown>): Promise<void> {
  const { data } = await send<ActionResult>('POST', `/actions/${feature}/${name}`, values);
  const label = verbLabel(feature, name);
  const notes = data.notes.map((note) => `${note.charAt(0).toUpperCase()}${note.slice(1)}.`.replace(/\.\.$/, '.'));
  toast([t('parts.done', { action: label, n: data.affected }), ...notes].join(' '), data.affected > 0 ? 'good' : 'bad');
}

/** Asks, then runs an action. `what` names its object. */
export async function ask(feature: string, name: string, values: Record<string, unknown>, what: string): Promise<boolean> {
  const found = verb(feature, name);
  const label = verbLabel(feature, name);
  const text = found === undefined ? '' : verbHelp(feature, found);
  const yes = await confirm({ title: t('parts.confirm', { action: label, what }), text, action: label, danger: isDangerous(name) });
  return yes && run(feature, name, values);
}

/** The values of a verb's fields that a row has under the same names. */
export function valuesOf(each: Verb, row: Row): Record<string, unknown> {
  return Object.fromEntries(each.fields.filter((field) => row[field.name] !== undefined && row[field.name] !== null).map((field) => [field.name, row[field.name]]));
}
