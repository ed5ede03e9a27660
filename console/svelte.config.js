import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

export default {
  preprocess: vitePreprocess({ style: false }),
  compilerOptions: {
    runes: true,
    // A strict Content-Security-Policy has no inline styles: all styles are in the style sheet.
    css: 'external',
    // Short names: each element of a component carries one, and the pages have a size limit.
    cssHash: ({ hash, filename }) => `c${hash(filename.replace(/^.*[\\/]src[\\/]/, '').replaceAll('\\', '/')).slice(0, 4)}`,
  },
};
