/** Light or dark: as the system prefers, or as chosen in this browser. */

export type Theme = 'system' | 'light' | 'dark';
export const THEMES: Theme[] = ['system', 'light', 'dark'];

const STORED = 'encke-theme';
const prefersDark = matchMedia('(prefers-color-scheme: dark)');
const state = $state<{ theme: Theme; systemDark: boolean }>({ theme: read(), systemDark: prefersDark.matches });
prefersDark.addEventListener('change', () => {
  state.systemDark = prefersDark.matches;
});
apply();

function read(): Theme {
  try {
    const theme = localStorage.getItem(STORED);
    if (theme === 'light' || theme === 'dark') return theme;
  } catch {
    // Storage may be forbidden.
  }
  return 'system';
}

export const theme = (): Theme => state.theme;

/** Whether dark colours are in use now. Graphs read it to redraw. */
export const isDark = (): boolean => (state.theme === 'system' ? state.systemDark : state.theme === 'dark');

export function setTheme(theme: Theme): void {
  state.theme = theme;
  apply();
  try {
    if (theme === 'system') localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, theme);
  } catch {
    // The choice then lasts until the page is left.
  }
}

function apply(): void {
  if (state.theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = state.theme;
}
