import { render } from 'preact';
import { App } from './app.js';
import './styles/index.css';

const place = document.getElementById('app');
if (place !== null) render(<App />, place);
