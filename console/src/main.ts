import './app.css';

import { mount } from 'svelte';

import App from './App.svelte';
import { start } from './lib/session.svelte';
import { loadMessages } from './lib/i18n.svelte';

await Promise.all([loadMessages(), start()]);
const target = document.getElementById('app');
if (target) mount(App, { target });
