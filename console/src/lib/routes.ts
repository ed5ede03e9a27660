/** The pages in the order of the navigation. A page appears when its file exists in `pages/`. */

import type { Component } from 'svelte';
import type { IconName } from './Icon.svelte';

export interface Page {
  name: string;
  icon: IconName;
  /** On a phone, one of the four in the bar; the others are in its menu. */
  bar?: true;
  /** After `g`, opens the page. */
  key: string;
  component: Component;
}

const files = import.meta.glob<Component>('../pages/*.svelte', { eager: true, import: 'default' });
const PAGES: Omit<Page, 'component'>[] = [
  { name: 'overview', icon: 'overview', key: 'o', bar: true },
  { name: 'connections', icon: 'connections', key: 'c', bar: true },
  { name: 'channels', icon: 'channels', key: 'h', bar: true },
  { name: 'streams', icon: 'play', key: 'v' },
  { name: 'upstreams', icon: 'upstreams', key: 'u' },
  { name: 'log', icon: 'log', key: 'l', bar: true },
  { name: 'explain', icon: 'search', key: 'e' },
  { name: 'settings', icon: 'settings', key: 's' },
];

export const pages: Page[] = PAGES.flatMap((page) => {
  const component = files[`../pages/${page.name[0]?.toUpperCase()}${page.name.slice(1)}.svelte`];
  return component ? [{ ...page, component }] : [];
});
