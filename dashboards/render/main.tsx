// Draws one dashboard, window.BOARD, whose panels carry the answers to their queries.
import {
  applyFieldOverrides, createTheme, dateTime, displayNameOverrideProcessor, FieldConfigOptionsRegistry, FieldType,
  getDisplayValueAlignmentFactors,
  identityOverrideProcessor, numberOverrideProcessor, ThemeContext, thresholdsOverrideProcessor, toDataFrame,
  unitOverrideProcessor, valueMappingsOverrideProcessor, VizOrientation, type DataFrame,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { Component, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';

const theme = createTheme({ colors: { mode: 'light' } });
const board = (window as any).BOARD;
const WIDTH = 1500, CELL = 38, GAP = 8;
const range = { from: dateTime(board.from), to: dateTime(board.to), raw: { from: dateTime(board.from), to: dateTime(board.to) } };

const CUSTOM = ['drawStyle', 'lineInterpolation', 'lineWidth', 'fillOpacity', 'showPoints', 'spanNulls', 'stacking', 'axisSoftMin',
  'thresholdsStyle', 'lineStyle', 'axisPlacement', 'align', 'cellOptions', 'filterable', 'scaleDistribution'];
const STANDARD: Array<[string, any]> = [
  ['unit', unitOverrideProcessor], ['min', numberOverrideProcessor], ['max', numberOverrideProcessor], ['decimals', numberOverrideProcessor],
  ['displayName', displayNameOverrideProcessor], ['color', identityOverrideProcessor], ['thresholds', thresholdsOverrideProcessor],
  ['mappings', valueMappingsOverrideProcessor], ['noValue', identityOverrideProcessor], ['links', identityOverrideProcessor],
];
const item = (id: string, path: string, process: any, isCustom: boolean) =>
  ({ id, path, name: id, process, isCustom, shouldApply: () => true, editor: () => null, override: () => null, settings: {} }) as any;
const registry = new FieldConfigOptionsRegistry(() => [
  ...STANDARD.map(([id, process]) => item(id, id, process, false)),
  ...CUSTOM.map((path) => item(`custom.${path}`, path, identityOverrideProcessor, true)),
]);

// JSON has no infinity: the base of a list of thresholds is null there.
function grounded(value: any): any {
  if (Array.isArray(value)) { return value.map(grounded); }
  if (value && typeof value === 'object') {
    const made = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, grounded(each)]));
    return 'color' in made && 'value' in made && made.value === null ? { ...made, value: -Infinity } : made;
  }
  return value;
}

function dressed(panel: any, data: DataFrame[]): DataFrame[] {
  const fieldConfig = grounded(panel.fieldConfig);
  if (panel.type === 'timeseries') {
    fieldConfig.defaults.custom = { scaleDistribution: { type: 'linear' }, axisPlacement: 'auto', ...fieldConfig.defaults.custom };
  }
  return applyFieldOverrides({ data, fieldConfig, fieldConfigRegistry: registry, replaceVariables: (text: string) => text, theme, timeZone: 'utc' });
}

function frames(panel: any): DataFrame[] {
  return panel.answers.flat().map((each: any, index: number) => toDataFrame({
    refId: String(index),
    fields: [
      { name: 'Time', type: FieldType.time, values: each.values.map(([at]: [number]) => at * 1000) },
      { name: each.name, type: FieldType.number, values: each.values.map(([, text]: [number, string]) => Number(text)), config: { displayNameFromDS: each.name } },
    ],
  }));
}

function joined(panel: any): DataFrame {
  const { indexByName, renameByName } = panel.transformations[1].options;
  const key = Object.keys(indexByName)[0];
  const keys = [...new Set(panel.answers.flat().map((each: any) => each.labels[key]))].sort() as string[];
  const columns = panel.answers.map((answers: any[], index: number) => ({
    name: renameByName[`Value #${String.fromCharCode(65 + index)}`], type: FieldType.number,
    values: keys.map((wanted) => { const found = answers.find((each) => each.labels[key] === wanted); return found ? Number(found.values[0][1]) : null; }),
  }));
  const sorted = columns.find((column: any) => column.name === panel.options.sortBy[0].displayName).values;
  const rows = keys.map((_, row) => row).sort((one, other) => sorted[other] - sorted[one]);
  const fields = [{ name: renameByName[key], type: FieldType.string, values: keys }, ...columns];
  return toDataFrame({ fields: fields.map((field) => ({ ...field, values: rows.map((row) => field.values[row]) })) });
}

const last = (frame: DataFrame) => frame.fields[1].display!(frame.fields[1].values[frame.fields[1].values.length - 1]);

function Stat({ panel, width, height }: any) {
  const shown = dressed(panel, frames(panel));
  if (shown.length === 0) { return <>{panel.fieldConfig.defaults.noValue ?? 'No data'}</>; }
  const frame = shown[shown.length - 1];
  const named = panel.options.textMode === 'name';
  const value = named ? { ...last(frame), text: frame.fields[1].config.displayNameFromDS!, prefix: '', suffix: '' } : last(frame);
  const sparkline = panel.options.graphMode === 'area' ? { y: frame.fields[1], x: frame.fields[0] } : undefined;
  return <BigValue value={value} width={width} height={height} theme={theme} colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
    justifyMode={'auto' as any} textMode={'value' as any} sparkline={sparkline as any} />;
}

function Bars({ panel, width, height }: any) {
  const shown = dressed(panel, frames(panel)).slice(0, Math.max(1, Math.floor(height / 24)));
  const top = Math.max(...shown.map((frame) => frame.fields[1].values[0]), 1e-9);
  const values = shown.map((frame) => ({ ...last(frame), title: frame.fields[1].config.displayNameFromDS }));
  return <>{shown.map((frame, index) => (
    <BarGauge key={index} width={width} height={Math.min(34, height / shown.length) - 4} theme={theme} display={frame.fields[1].display}
      field={{ ...frame.fields[1].config, min: 0, max: panel.fieldConfig.defaults.color.mode === 'thresholds' ? Math.max(1, top) : top }}
      value={values[index]} alignmentFactors={getDisplayValueAlignmentFactors(values.map((display) => ({ display })) as any)} text={{ titleSize: 13, valueSize: 14 }} orientation={VizOrientation.Horizontal} itemSpacing={4}
      displayMode={panel.options.displayMode} showUnfilled={false} />
  ))}</>;
}

// Grafana's own table does not load outside of Grafana; the values, units and colours are its own all the same.
function PlainTable({ frame }: { frame: DataFrame }) {
  const cell = (numeric: boolean) => ({ padding: '5px 10px', textAlign: numeric ? 'right' as const : 'left' as const, borderBottom: '1px solid #e4e5e6' });
  const text = (field: any, row: number) => {
    const value = field.display(field.values[row]);
    return field.values[row] === null ? '' : `${value.prefix ?? ''}${value.text}${value.suffix ?? ''}`;
  };
  return <table style={{ width: '100%', fontSize: 13 }}>
    <thead><tr>{frame.fields.map((field) => <th key={field.name} style={cell(field.type === FieldType.number)}>{field.name}</th>)}</tr></thead>
    <tbody>{Array.from({ length: frame.length }, (_, row) => <tr key={row}>{frame.fields.map((field) => (
      <td key={field.name} style={{ ...cell(field.type === FieldType.number), color: field.config.custom?.cellOptions?.type === 'color-text' ? field.display!(field.values[row]).color : undefined }}>{text(field, row)}</td>
    ))}</tr>)}</tbody>
  </table>;
}

function Body({ panel, width, height }: any) {
  switch (panel.type) {
    case 'stat': return <Stat {...{ panel, width, height }} />;
    case 'bargauge': return <Bars {...{ panel, width, height }} />;
    case 'table': return <PlainTable frame={dressed(panel, [joined(panel)])[0]} />;
    case 'timeseries': {
      const shown = dressed(panel, frames(panel));
      return shown.length === 0 ? <>No data</> : <TimeSeries frames={shown} structureRev={1} width={width} height={height} timeRange={range as any} timeZone="utc"
        legend={panel.options.legend} />;
    }
    default: return <>{panel.type} is not drawn here</>;
  }
}

// One panel that cannot be drawn says so and leaves the others alone.
class Guard extends Component<{ children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};
  static getDerivedStateFromError(error: Error) { return { error }; }
  render() { return this.state.error ? <pre>{String(this.state.error.stack).slice(0, 600)}</pre> : this.props.children; }
}

function Placed({ panel }: any) {
  const { x, y, w, h } = panel.gridPos, column = (WIDTH - GAP) / 24;
  const place = { position: 'absolute' as const, left: GAP + x * column, top: 44 + y * CELL };
  if (panel.type === 'row') { return <h4 style={{ ...place, padding: '8px 4px' }}>⌄ {panel.title}</h4>; }
  return <div style={place}><PanelChrome width={w * column - GAP} height={h * CELL - GAP} title={panel.title} description={panel.description}>
    {(width: number, height: number) => <Guard><Body {...{ panel, width, height }} /></Guard>}
  </PanelChrome></div>;
}

createRoot(document.getElementById('root')!).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: 'relative', minHeight: '100vh', background: theme.colors.background.canvas }}>
      <h3 style={{ padding: '10px 12px' }}>{board.title}</h3>
      {board.panels.map((panel: any) => <Placed key={panel.id} panel={panel} />)}
    </div>
  </ThemeContext.Provider>
);
