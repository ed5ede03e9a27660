import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

import { messageLists } from './tools/messages.mjs';
import { smallUplot } from './tools/uplot.mjs';

/** `ENCKE_ADMIN` names the admin listener that `npm run dev` forwards API requests to. */
const admin = process.env.ENCKE_ADMIN ?? 'http://127.0.0.1:8081';

export default defineConfig({
  plugins: [messageLists(), smallUplot(), svelte()],
  base: './',
  build: {
    target: 'es2022',
    // One style sheet, loaded before the first page, so that no page appears without its styles.
    cssCodeSplit: false,
    // The policy `img-src 'self' data:` allows no inlined font or script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        entryFileNames: 'assets/[name]-[hash].js',
        chunkFileNames: 'assets/[name]-[hash].js',
        assetFileNames: 'assets/[name]-[hash][extname]',
        // All pages in one file: together they compress better, and no page waits for its code. Languages stay apart.
        codeSplitting: { groups: [{ name: 'console', test: (id: string) => !id.includes('/messages/') }] },
      },
    },
  },
  server: {
    proxy: {
      '/api': {
        target: admin,
        changeOrigin: true,
        // The server rejects a foreign origin; the proxy speaks for the page that it serves.
        configure: (proxy) => proxy.on('proxyReq', (request) => request.setHeader('origin', admin)),
      },
    },
  },
});
