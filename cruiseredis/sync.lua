-- Carries out a request at the time of this server, as State.Report and State.Commit of package
-- shared do, in the same order and with the same numbers: see there for what the fields mean. Times
-- are microseconds, rates millionths of a call per second.
--
-- KEYS[1] is a hash. ARGV are the whole numbers of a request, see args in store.go, and for a commit
-- those of a decision and the memory of the law. The answer begins with 0 and is that to the
-- request, or begins with 1 and is the news for a step of the law: see parse.

local MILLION = 1000000
local HORIZON = MILLION
local PERIOD = 500000
local GAP = 2 * PERIOD
local MAX_TURN = 5 * MILLION
local COUNT = 5 * MILLION
local STEP_GAP = MILLION / 10
local STEP_TIME = MILLION / 5
local KEPT = 3 * PERIOD
local PART = 4
local QUEUE = PERIOD / 8
local MOST = MILLION
local YEAR = 365 * 86400000000
local MOST_EPOCH = 4503599627370496
local MAX_PAUSE = 31 * 86400000000
local CLOSED_ROW = 2
local CAUSES = 3
local IDLE = 600 * MILLION -- for which the key outlives its other times

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local q, names = {}, {
  'min', 'max', 'initial', 'burst', 'want', 'least', 'epoch', 'rate', 'ceiling',
  'throttled', 'backoff', 'successes', 'failed', 'late', 'pause', 'newPause', 'resume', 'resumes', 'count', 'held',
  'quotaAge', 'quotaLimit', 'quotaLeft', 'quotaReset',
}
local request = #names
local decision = { 'step', 'dRate', 'dCeiling', 'why', 'level', 'row', 'dPause', 'void' }
local commit = #ARGV > request
if commit then
  for _, name in ipairs(decision) do
    names[#names + 1] = name
  end
end
for i, name in ipairs(names) do
  q[name] = tonumber(ARGV[i])
  if not q[name] then
    return redis.error_reply('CRUISE bad argument ' .. name)
  end
end

local times = { 'at', 'tat', 'until', 'lifted', 'cutAt', 'countEnd', 'steppedAt', 'lease', 'quotaAt', 'outAt' }
local fields = {
  'epoch', 'resumes', 'rate', 'out', 'outBefore', 'count', 'counted', 'before', 'cap', 'capBefore',
  'steps', 'ceiling', 'why', 'level', 'row',
  'oks', 'errs', 'late', 'used', 'throttled', 'backoff', 'asked', 'quotaLimit', 'quotaLeft', 'reset',
}
for _, name in ipairs(times) do
  fields[#fields + 1] = name
end
local s, stored = {}, redis.call('HMGET', KEYS[1], unpack(fields))
for i, name in ipairs(fields) do
  local v = stored[i] and tonumber(stored[i])
  if not v or v ~= floor(v) or v > 9007199254740991 or v < -9007199254740991 then
    s.epoch = 0 -- there is no state, or it is damaged
    break
  end
  s[name] = v
end
-- What no sync leaves behind: workers would refuse each answer, or wait for it in vain.
if s.epoch ~= 0 and (s.rate < 1 or s.epoch > MOST_EPOCH or min(s.ceiling, s.why, s.level, s.row, s.resumes, s.cap, s.capBefore, s.used) < 0
  or s.why >= CAUSES or max(s['until'], s.lifted) - s.at > MAX_PAUSE or s.tat - s.at > 100 * YEAR or s.countEnd - s.at > COUNT
  or s.lease - s.at > STEP_TIME or max(s.cutAt, s.quotaAt, s.steppedAt, s.outAt) > s.at) then
  s.epoch = 0
end

local time = redis.call('TIME')
local t = tonumber(time[1]) * MILLION + tonumber(time[2])
local cost = max(1, q.least) -- of a call

-- A law begins anew.
local function forget()
  redis.call('HSET', KEYS[1], 'law', '')
end

-- The time from one slot to the next.
local function spacing()
  return ceil(1e12 / s.rate)
end

local function change(rate)
  local gap = spacing()
  s.rate = max(1, rate)
  s.tat = s.tat + spacing() - gap
end

-- Slots that were given out are void.
local function void()
  s.epoch, s.cutAt, s.tat = s.epoch + 1, s.at, min(s.tat, s.at)
end

-- How long it takes until all workers have synced, where slots are short.
local function turn(workers)
  local two = min(2e12 * workers / s.rate, MAX_TURN)
  return max(PERIOD, min(floor(two), floor(HORIZON * workers / 8)))
end

local function awake()
  if s.epoch == 0 then
    for _, name in ipairs(fields) do
      s[name] = 0
    end
    s.at, s.tat, s['until'], s.cutAt, s.lifted = t, t + min(q.held, HORIZON), t, t - GAP, t
    s.steppedAt, s.lease, s.outAt, s.quotaAt, s.quotaLeft = t, t, t, t - YEAR, -1
    s.resumes, s.rate, s.count, s.countEnd = q.resumes, q.initial, q.count, t
    forget()
  elseif t < s.at then
    local back = s.at - t
    for _, name in ipairs(times) do
      s[name] = s[name] - back
    end
  end
  if q.epoch > s.epoch then
    s.epoch, s.rate, s.ceiling = q.epoch, q.rate, q.ceiling
    s.resumes, s.steps = max(s.resumes, q.resumes), s.steps + 1
    forget()
  end
  if q.want > 0 and s.steps == 0 and s.tat <= s.steppedAt then
    s.rate = q.initial
  end
  s.epoch, s.rate = max(s.epoch, 1), max(s.rate, 1)
end

local function advance()
  local dt = t - s.at
  if s.row == 0 then
    dt = min(max(s.tat - s.at, 0), dt)
  end
  s.used, s.at = s.used + dt, t
end

local function reported(n)
  local age = t - s.outAt
  if age >= KEPT then
    s.outBefore, s.out, s.outAt = s.out, 0, t
    if age >= 2 * KEPT then
      s.outBefore = 0
    end
  end
  local old = min(s.outBefore, n)
  s.outBefore, s.out = s.outBefore - old, max(0, s.out - (n - old))
end

local function count()
  if t >= s.countEnd then
    s.before, s.capBefore = s.counted, s.cap
    if t - s.countEnd >= COUNT then
      s.before, s.capBefore = 0, 0
    end
    s.count, s.countEnd, s.counted, s.cap = s.count + 1, t + COUNT, 0, 0
  end
  if q.count ~= s.count then
    s.counted = s.counted + 1
  end
  if s.cap == 0 or q.max < s.cap then
    s.cap = q.max
  end
end

local function most()
  local rate = min(s.cap, q.max)
  if s.capBefore > 0 then
    rate = min(rate, s.capBefore)
  end
  return rate
end

-- Calls that were under way when the server closed do not open it.
local function late()
  return s.ceiling > 0 and q.epoch < s.epoch - max(0, s.row - CLOSED_ROW) and t - s.cutAt < IDLE
end

local function report()
  awake()
  count()
  local workers = max(1, s.before, s.counted)
  advance()
  if s.rate > most() then
    void()
    change(most())
  end
  change(max(s.rate, q.min))
  if q.resume == 1 then
    s.lifted = max(s.lifted, s['until'])
    s.resumes, s['until'] = s.resumes + 1, t
  elseif q.pause > 0 and (q.newPause == 1 or q.resumes >= s.resumes) then
    s['until'] = max(s['until'], t + min(q.pause, MAX_PAUSE))
  end
  s.errs = s.errs + q.failed
  if late() then
    s.errs = s.errs + q.successes
  else
    s.oks = s.oks + q.successes
  end
  reported(q.successes + q.failed)
  if q.quotaAge >= 0 and t - q.quotaAge > s.quotaAt then
    s.quotaAt, s.quotaLimit, s.quotaLeft, s.reset = t - q.quotaAge, q.quotaLimit, q.quotaLeft, q.quotaReset
  end
  s.late = s.late + q.late
  if q.throttled == 1 and (q.epoch ~= s.epoch or t - s.cutAt < GAP) then
    s.late = s.late + 1
  elseif q.throttled == 1 then
    s.throttled, s.backoff, s.asked = 1, q.backoff, 0
    if q.newPause == 1 and q.backoff <= 0 then
      s.asked = q.pause
    end
    local tat = s.tat
    void()
    s.tat = min(tat, t + floor(turn(workers) * (workers - 1) / workers) + spacing())
  end
end

local function take()
  t = max(t, s.at)
  advance()
  if q.step ~= s.steps then
    return
  end
  s.steps, s.lease = s.steps + 1, t
  if s.throttled == 2 then
    s.throttled = 0
  end
  if q.void == 1 then
    void()
  end
  if q.dRate < s.rate then
    s.why = q.why
  end
  change(min(max(q.dRate, q.min), most()))
  s.ceiling, s.level, s.row = q.dCeiling, q.level, q.row
  if q.dPause > 0 then
    s['until'] = max(s['until'], t + q.dPause)
  end
  redis.call('HSET', KEYS[1], 'law', ARGV[#ARGV])
end

local function due()
  if t < s.lease then
    return false
  end
  return s.throttled > 0 or s.row > 0 and s.oks > 0 or s.oks + s.errs > 0 and t - s.steppedAt >= STEP_GAP
end

local function news(workers)
  local left = -1
  if s.oks > 0 then
    left = s.quotaLeft
  end
  local n = {
    1, s.steps, s.rate, s.ceiling, s.level, most(), max(GAP, turn(workers)), t - s.steppedAt, s.used, s.out + s.outBefore, s.oks, s.errs, s.late,
    s.throttled, s.backoff, s.asked, s.quotaLimit, left, s.reset, t - s.quotaAt, redis.call('HMGET', KEYS[1], 'law')[1] or '',
  }
  s.steppedAt, s.lease = t, t + STEP_TIME
  s.oks, s.errs, s.late, s.used, s.throttled, s.quotaLeft = 0, 0, 0, 0, min(2, 2 * s.throttled), -1
  return n
end

local function give(workers)
  if s['until'] > t then
    return 0, s['until'] - t, 0
  end
  if q.want <= 0 then
    return 0, 0, 0
  end
  local want, least = q.want, cost
  local gap = 1e12 / s.rate
  if s.row >= CLOSED_ROW then
    gap, want = max(4 * gap, HORIZON / least), least
  end
  local saved = floor((q.burst - 1) * gap)
  local start = max(s.tat, t - saved, s['until'])
  local free = HORIZON - (start - t)
  if free <= 0 then
    return 0, -free, 0
  end
  local part = floor(free / gap / min(workers, PART))
  if start - t > QUEUE then
    part = min(part, ceil(turn(workers) / gap / workers))
  end
  local slots = min(max(least, min(want, part)), MOST)
  local span = ceil(slots * gap)
  s.tat = start + span
  return slots, start - t, span
end

local function answer()
  local workers = max(1, s.before, s.counted)
  if due() then
    return news(workers)
  end
  local slots, wait, span = give(workers)
  s.out = s.out + slots
  return {
    0, slots, wait, span, s.epoch, s.rate, s.ceiling, s.level, max(0, s['until'] - t), s.resumes, workers, s.count, s.why,
  }
end

if not commit then
  report()
elseif s.epoch == 0 then
  return redis.error_reply('CRUISE no state for a step')
else
  take()
end
local reply = answer()

local row = {}
for _, name in ipairs(fields) do
  row[#row + 1] = name
  row[#row + 1] = string.format('%.0f', s[name])
end
redis.call('HSET', KEYS[1], unpack(row))
local kept = max(s.tat, s['until'], s.lifted, t) - t + IDLE + 2e12 / s.rate
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ceil(kept / 1000)))
return reply
