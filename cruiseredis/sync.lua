-- One step of the state that the workers of a scope share, at the time of this
-- server. It does what SharedState.Sync of package cruise does, in the same order
-- and with the same numbers: see there for what the fields mean. Times are
-- microseconds, rates millionths of a call per second.
--
-- KEYS[1] is a hash. ARGV are the whole numbers of a request, see args in
-- store.go. The answer is whole numbers too, see parse.

local MILLION = 1000000
local HORIZON = MILLION
local PERIOD = 500000
local GAP = 2 * PERIOD
local MAX_TURN = 5 * MILLION
local COUNT = 5 * MILLION
local MEMORY = MILLION
local CALLS = 20
local USED = .75
local START = .5
local MIN_AGE = 5 * MILLION
local MAX_AGE = 50 * MILLION
local STEP = .1
local CLOSED = 100000
local PART = 4
local MOST = MILLION
local YEAR = 365 * 86400000000
local MAX_PAUSE = 31 * 86400000000
local CLOSED_ROW = 2
local REOPEN_TO = .9
local BACK_TO = .9
local BACK_OVER = 5
local PROBE_OVER = 100
local PROBE_AGE = .2
local PUSH_ON = 40
local CREDIT_OVER = 3
local PAUSE_GAPS = 2
local IDLE = 600 * MILLION -- for which the key outlives what it says

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local q, names = {}, {
  'min', 'max', 'initial', 'decrease', 'increase', 'burst', 'forgive', 'pauseBase',
  'want', 'least', 'epoch', 'rate', 'ceiling', 'throttled', 'backoff', 'successes',
  'pause', 'newPause', 'resume', 'resumes', 'count', 'held',
}
for i, name in ipairs(names) do
  q[name] = tonumber(ARGV[i])
  if not q[name] then
    return redis.error_reply('CRUISE bad argument ' .. name)
  end
end

local fields = {
  'at', 'tat', 'until', 'credit', 'cutAt', 'born', 'openAt', 'epoch', 'resumes',
  'rate', 'ceiling', 'flow', 'busy', 'oks', 'total', 'openTotal', 'row', 'level',
  'passed', 'most', 'count', 'countEnd', 'counted', 'before',
}
local s, stored = {}, redis.call('HMGET', KEYS[1], unpack(fields))
for i, name in ipairs(fields) do
  local v = stored[i] and tonumber(stored[i])
  if not v or v ~= floor(v) or v > 9007199254740991 or v < -9007199254740991 then
    s.epoch = 0 -- there is no state, or it is damaged
    break
  end
  s[name] = v
end
if s.rate and s.rate < 1 then
  s.epoch = 0
end

local time = redis.call('TIME')
local t = tonumber(time[1]) * MILLION + tonumber(time[2])

if s.epoch == 0 then
  for _, name in ipairs(fields) do
    s[name] = 0
  end
  s.at, s.tat, s['until'], s.credit, s.cutAt, s.born, s.openAt = t, t + min(q.held, HORIZON), t, t, t - GAP, t, t
  s.resumes, s.rate, s.count, s.countEnd = q.resumes, q.initial, q.count, t
elseif t < s.at then
  local back = s.at - t
  s.at, s.tat, s['until'], s.credit = t, s.tat - back, s['until'] - back, s.credit - back
  s.cutAt, s.born, s.openAt, s.countEnd = s.cutAt - back, s.born - back, s.openAt - back, s.countEnd - back
end
if q.epoch > s.epoch then
  s.epoch, s.rate, s.ceiling = q.epoch, q.rate, q.ceiling
  s.resumes = max(s.resumes, q.resumes)
end
s.epoch = max(s.epoch, 1)
s.rate = min(max(s.rate, q.min), q.max)

if t >= s.countEnd then
  s.before = s.counted
  if t - s.countEnd >= COUNT then
    s.before = 0
  end
  s.count, s.countEnd, s.counted = s.count + 1, t + COUNT, 0
end
if q.count ~= s.count then
  s.counted = s.counted + 1
end
local workers = max(1, s.before, s.counted)

local function measure()
  local dt = t - s.at
  local busy = min(max(s.tat - s.at, 0), dt)
  local memory = max(MEMORY, CALLS * 1e12 / s.rate)
  s.flow = floor((s.flow * memory + q.successes * 1e12) / (memory + dt))
  s.busy = floor((s.busy * memory + busy * 1e6) / (memory + dt))
  s.at = t
end

local function grow()
  local r, c = s.rate, s.ceiling
  local dt = min(t - s.credit, max(PERIOD, CREDIT_OVER * 1e12 / r)) / 1e6
  local used = s.flow / r
  local back = floor(BACK_TO * c)
  if c == 0 then
    if used < START then
      return
    end
    r = r + r * dt
  elseif used < USED then
    return
  else
    local age = min(max(PROBE_AGE * (t - s.born), MIN_AGE), MAX_AGE)
    local slope = q.increase / 1e6 * c / max(PROBE_OVER * 1e12 / c, age) * 1e6
    if r < back then
      local decrease = q.decrease / 1e6
      slope = max(slope, (BACK_TO - decrease) * c / 1e6 * c / BACK_OVER)
      r = min(back, r + slope * dt)
    else
      if r > c then
        slope = slope * (1 + PUSH_ON * (r / c - 1))
      end
      r = r + min(slope * dt, STEP * r)
    end
  end
  s.rate = min(q.max, floor(r))
end

local function success()
  s.oks = s.oks + q.successes
  s.total = s.total + q.successes
  s.passed = s.passed + q.successes
  if s.level > 0 and s.passed >= q.forgive then
    s.level, s.passed, s.most = s.level - 1, 0, floor(s.most / 2)
  end
  if s.row >= CLOSED_ROW then
    local given = floor((s.total - s.openTotal) * 1e12 / max(1, t - s.openAt))
    if given < s.ceiling then
      s.ceiling = max(q.min, given)
      s.rate = min(s.rate, max(q.min, floor(REOPEN_TO * given)))
    end
    s.openAt, s.openTotal = t, s.total
  end
  s.row = 0
  if q.throttled == 0 and q.epoch == s.epoch then
    grow()
  end
  s.credit = t
end

-- How long it takes until all workers have synced, where slots are short.
local function turn()
  local two = min(2e12 * workers / s.rate, MAX_TURN)
  return max(PERIOD, min(floor(two), floor(HORIZON * workers / 8)))
end

local function throttle()
  local again = s.level > 0 and s.passed == 0
  s.epoch, s.cutAt, s.credit, s.row = s.epoch + 1, t, t, s.row + 1
  if s.oks > 0 then
    local r = s.rate
    local given = r
    if s.busy > 0 then
      given = min(r, s.flow * 1e6 / s.busy)
    end
    given = max(given, r / 2)
    s.ceiling = floor(given)
    s.rate = max(q.min, floor(given * q.decrease / 1e6))
    s.ceiling = max(s.ceiling, s.rate)
    s.oks = 0
  end
  s.tat = min(s.tat, t + floor(turn() * (workers - 1) / workers))
  s.level, s.passed = min(s.level + 1, 60), 0
  s.most = max(ceil(PAUSE_GAPS * 1e12 / s.rate), min(2 * s.most, YEAR))
  if again then
    s.most = max(s.most, q.pauseBase)
  end
  if q.backoff > 0 then
    s['until'] = max(s['until'], t + min(q.backoff, s.most))
  end
end

local function give()
  if s['until'] > t then
    return 0, s['until'] - t, 0
  end
  if q.want <= 0 then
    return 0, 0, 0
  end
  local want, least = q.want, max(1, q.least)
  local spacing = 1e12 / s.rate
  if s.row >= CLOSED_ROW then
    spacing, want = max(4 * spacing, CLOSED), least
  end
  local saved = floor((q.burst - 1) * spacing)
  local start = max(s.tat, t - saved, s['until'])
  local free = HORIZON - (start - t)
  if free <= 0 then
    return 0, -free, 0
  end
  local part = floor(free / spacing / min(workers, PART))
  local slots = min(max(least, min(want, part)), MOST)
  local span = ceil(slots * spacing)
  s.tat = start + span
  return slots, start - t, span
end

measure()
if q.resume == 1 then
  s.resumes, s['until'] = s.resumes + 1, t
elseif q.pause > 0 and (q.newPause == 1 or q.resumes >= s.resumes) then
  s['until'] = max(s['until'], t + min(q.pause, MAX_PAUSE))
end
if q.successes > 0 then
  success()
end
if q.throttled == 1 and q.epoch == s.epoch and t - s.cutAt >= GAP then
  throttle()
end
local slots, wait, span = give()

local row = {}
for _, name in ipairs(fields) do
  row[#row + 1] = name
  row[#row + 1] = string.format('%.0f', s[name])
end
redis.call('HSET', KEYS[1], unpack(row))
local kept = max(s.tat, s['until'], t) - t + IDLE + 2e12 / s.rate
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ceil(kept / 1000)))

return {
  slots, wait, span, s.epoch, s.rate, s.ceiling, s.level,
  max(0, s['until'] - t), s.resumes, workers, s.count,
}
