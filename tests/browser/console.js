/** Runs the tests of the console side by side, as all.js does. `console-many.test.js` measures times, so it runs afterwards, alone. */

import { describe } from 'node:test';

/** More would keep two cores busy, and pages late. */
const ABREAST = 4;

describe('the console', { concurrency: ABREAST }, async () => {
  // The longest tests first.
  await import('./console-growth.test.js');
  await import('./console.test.js');
});
