-- One step of the state that the workers of a scope share, at the time of this
-- server. It does what State.Sync of package shared does, in the same order
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
local USED = .5
local TOLD = MILLION / 4
local MIN_AGE = 5 * MILLION
local MAX_AGE = 50 * MILLION
local PEAK_TO = .7
local FADES = .2
local PART = 4
local QUEUE = PERIOD / 8
local MOST = MILLION
local YEAR = 365 * 86400000000
local SHORT = 3 * MILLION
local MOST_EPOCH = 4503599627370496
local MAX_PAUSE = 31 * 86400000000
local CLOSED_ROW = 2
local REOPEN_TO = .9
local LONG_CALLS = 250
local BACK_TO = .9
local BACK_OVER = 5
local PROBE_OVER = 100
local AGREE_WITHIN = .1
local AGREE_MOST = 3
local PROBE_AGE = .2
local PUSH_ON = 40
local CREDIT_OVER = 3
local PAUSE_GAPS = 2
local OUTAGE_LEAST = 180 * MILLION
local RESET_SLACK = 1500000
local RATION_AFTER = 3
local USED_UP_MOST = 10000000
local HINT_LEAST = 10
local HINT_CUT = .75
local HINT_GAPS = 2
local HINT_GROW = .01
local HINT_GROW_MOST = .25
local HINT_MOST = 100
local HINT_SAME = 10
local SUCCESS, THROTTLE, QUOTA = 0, 1, 2
local IDLE = 600 * MILLION -- for which the key outlives what it says

local floor, ceil, min, max, abs, sqrt = math.floor, math.ceil, math.min, math.max, math.abs, math.sqrt

local q, names = {}, {
  'min', 'max', 'initial', 'decrease', 'increase', 'burst', 'forgive', 'pauseBase',
  'want', 'least', 'epoch', 'rate', 'ceiling', 'throttled', 'backoff', 'successes', 'failed',
  'pause', 'newPause', 'resume', 'resumes', 'count', 'held',
  'quotaAge', 'quotaLimit', 'quotaLeft', 'quotaReset',
}
for i, name in ipairs(names) do
  q[name] = tonumber(ARGV[i])
  if not q[name] then
    return redis.error_reply('CRUISE bad argument ' .. name)
  end
end

local fields = {
  'at', 'tat', 'until', 'credit', 'cutAt', 'born', 'closedAt', 'quotaAt', 'hintAt', 'resetAt',
  'epoch', 'resumes', 'rate', 'ceiling', 'peak', 'why', 'agreed', 'flow', 'busy',
  'oks', 'total', 'openTotal', 'openTime', 'row', 'level', 'passed', 'most',
  'hintLeft', 'resetLeft', 'unspread', 'hintSame',
  'count', 'countEnd', 'counted', 'before', 'cap', 'capBefore', 'lifted',
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
-- What no sync leaves behind: workers would refuse each answer, or wait for it in vain.
if s.epoch ~= 0 and (s.rate < 1 or s.epoch > MOST_EPOCH or min(s.ceiling, s.peak, s.why, s.level, s.resumes, s.cap, s.capBefore) < 0 or s.why > QUOTA
  or max(s['until'], s.lifted) - s.at > MAX_PAUSE or s.tat - s.at > 100 * YEAR or s.countEnd - s.at > COUNT
  or max(s.credit, s.cutAt, s.born, s.closedAt, s.quotaAt, s.hintAt) > s.at) then
  s.epoch = 0
end

local time = redis.call('TIME')
local t = tonumber(time[1]) * MILLION + tonumber(time[2])

if s.epoch == 0 then
  for _, name in ipairs(fields) do
    s[name] = 0
  end
  s.at, s.tat, s['until'], s.credit, s.cutAt, s.born = t, t + min(q.held, HORIZON), t, t, t - GAP, t
  s.closedAt, s.quotaAt, s.hintAt, s.resetAt, s.hintLeft, s.lifted = t, t - YEAR, t, t, 2147483647, t
  s.resumes, s.rate, s.count, s.countEnd = q.resumes, q.initial, q.count, t
elseif t < s.at then
  local back = s.at - t
  for _, name in ipairs({
    'at', 'tat', 'until', 'credit', 'cutAt', 'born', 'closedAt', 'quotaAt', 'hintAt', 'resetAt', 'countEnd', 'lifted',
  }) do
    s[name] = s[name] - back
  end
end
if q.epoch > s.epoch then
  s.epoch, s.rate, s.ceiling, s.peak, s.agreed, s.unspread = q.epoch, q.rate, q.ceiling, 0, 0, 0
  s.resumes = max(s.resumes, q.resumes)
  s.born = min(s.born, s.at - 1)
end
if q.want > 0 and s.epoch == 1 and s.tat <= s.born then
  s.rate = q.initial
end
s.epoch, s.rate = max(s.epoch, 1), max(s.rate, 1)

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
local workers = max(1, s.before, s.counted)
local cost = max(1, q.least) -- of a call, whose intervals the law goes by
if s.cap == 0 or q.max < s.cap then
  s.cap = q.max
end
q.max = s.cap
if s.capBefore > 0 then
  q.max = min(s.cap, s.capBefore)
end

-- The time from one slot to the next.
local function spacing()
  return ceil(1e12 / s.rate)
end

local function change(r, why)
  local was, gap = s.rate, spacing()
  s.rate = floor(min(max(r, q.min), q.max))
  if s.rate < was then
    s.why = why
  end
  s.tat = s.tat + spacing() - gap
end

-- Slots that were given out are void.
local function void()
  s.epoch, s.cutAt, s.tat = s.epoch + 1, s.at, min(s.tat, s.at)
end

local function measure()
  local dt, through = t - s.at, q.successes + q.failed
  local busy = min(max(s.tat - s.at, 0), dt)
  local memory = max(MEMORY, CALLS * cost * 1e12 / s.rate)
  s.flow = floor((s.flow * memory + through * 1e12) / (memory + dt))
  s.busy = floor((s.busy * memory + busy * 1e6) / (memory + dt))
  s.total = s.total + through
  s.openTime = s.openTime + (s.row > 0 and dt or busy)
  s.at = t
end

local function grow(spare)
  local r, c = s.rate, s.ceiling
  local dt = min(t - s.credit, max(PERIOD, CREDIT_OVER * cost * 1e12 / r)) / 1e6
  if s.flow < USED * r then
    return
  end
  if c == 0 then
    change(r + r * dt, SUCCESS)
    return
  end
  local most = c
  if r < PEAK_TO * s.peak then
    most = sqrt(c * max(c, s.peak))
  end
  local age = min(max(PROBE_AGE * (t - s.born), MIN_AGE), MAX_AGE)
  local rarely = 1 + s.agreed
  local slope = q.increase / 1e6 * most / max(rarely * PROBE_OVER * cost * 1e12 / most, age) * 1e6
  local back = floor(BACK_TO * c)
  if r < back then
    slope = max(slope, (BACK_TO - q.decrease / 1e6) * c / 1e6 * c / (BACK_OVER * cost))
    r = min(back, r + slope * dt)
  else
    if r > c then
      slope = slope * (1 + PUSH_ON * (1 + rarely) / 2 * (r / c - 1))
    end
    r = r + slope * dt
  end
  r = r + min(HINT_GROW_MOST * r, spare * HINT_GROW * sqrt(r * 1e6) * dt)
  change(r, SUCCESS)
end

local function windowed()
  if q.quotaReset <= 0 then
    return false
  end
  local reset = s.quotaAt + q.quotaReset
  local slack = RESET_SLACK + floor(q.quotaReset / 100)
  if abs(reset - s.resetAt) > slack then
    s.resetAt, s.resetLeft = reset, q.quotaLeft
    if q.quotaReset <= SHORT then
      s.resetLeft = -1
    end
    if s.unspread > s.rate then
      void()
      change(s.unspread, QUOTA)
    end
    s.unspread = 0
  end
  local used, limit = s.resetLeft - q.quotaLeft, q.quotaLimit
  return used >= max(RATION_AFTER, floor(min(limit, s.resetLeft) / 4))
    and (s.unspread > 0 or q.quotaReset * used > slack * (limit - q.quotaLeft))
end

local function ration()
  if q.quotaLimit > 0 and q.quotaLeft > floor(q.quotaLimit / 2) then
    return
  end
  local pace = max(cost, q.quotaLeft) * 1e12 / q.quotaReset
  if pace >= s.rate then
    return
  end
  if s.ceiling == 0 then
    s.ceiling = s.rate
  end
  s.unspread = max(s.unspread, min(s.rate, s.ceiling))
  change(pace, QUOTA)
end

-- Returns whether that is all for the successes, and the spare calls that growth goes by.
local function hint()
  local r, left, limit = s.rate, q.quotaLeft, q.quotaLimit
  if s.resetLeft < 0 then
    return false, 0
  end
  local reserve = max(HINT_LEAST, 2 * (1 + floor(r * PERIOD / 1e12)))
  if limit > 0 then
    if limit < reserve then
      return false, 0
    end
    reserve = min(reserve, max(1, limit / 4))
  end
  local was = s.hintLeft
  if left >= reserve then
    local spare = 0
    if q.quotaReset > 0 or left >= was then
      spare = min(HINT_MOST, left / reserve - 1)
    end
    s.hintAt, s.hintLeft, s.hintSame = t, left, 0
    return false, spare
  end
  local since = (t - s.hintAt) / 1e6
  if s.ceiling > 0 and since < max(HINT_GAPS * cost * 1e6 / r, GAP / 1e6) then
    return s.hintSame < HINT_SAME, 0
  end
  s.hintAt, s.hintLeft = t, left
  if s.ceiling == 0 or left < was then
    s.ceiling, s.hintSame = s.rate, 0
    r = r * HINT_CUT
  elseif left == was then
    if s.hintSame == HINT_SAME then
      return false, 0
    end
    s.hintSame = s.hintSame + 1
    r = r * HINT_CUT
  elseif left > was + 1 then
    s.hintSame = 0
    r = r + min(HINT_GROW_MOST * r, HINT_GROW * sqrt(r * 1e6) * since)
  end
  change(r, QUOTA)
  return true, 0
end

-- What was under way when the door closed does not open it.
local function late()
  return s.ceiling > 0 and q.epoch < s.epoch - max(0, s.row - CLOSED_ROW) and t - s.cutAt < IDLE
end

local function reopen()
  local calls, window = s.total - s.openTotal, t - s.closedAt <= OUTAGE_LEAST
  local given = floor(calls * 1e12 / max(1, s.openTime - floor((t - s.cutAt) / 2)))
  if window and given < s.ceiling then
    s.ceiling = max(q.min, given)
    change(min(s.rate, REOPEN_TO * given), SUCCESS)
  end
  if window and calls >= LONG_CALLS * cost then
    s.peak = min(s.peak, given)
  end
  s.openTime, s.openTotal = 0, s.total
end

local function success()
  s.oks = s.oks + q.successes
  s.passed = s.passed + q.successes
  if s.level > 0 and s.passed >= q.forgive then
    s.level, s.passed = s.level - 1, 0
  end
  if not late() then
    if s.row >= CLOSED_ROW then
      reopen()
    end
    s.row = 0
  end

  local told = q.quotaAge >= 0
  if told then
    if t - q.quotaAge <= s.quotaAt then
      return
    end
    s.quotaAt = t - q.quotaAge
  end
  local window = told and windowed()
  local settled, spare = false, 0
  if told and not window then
    settled, spare = hint()
  end
  local spread = not told and s.unspread > 0 and t < s.resetAt
  if not settled and not spread and q.throttled == 0 and q.epoch == s.epoch then
    grow(spare)
  end
  s.credit = t
  if window then
    if q.quotaLeft == 0 and q.quotaReset <= USED_UP_MOST then
      s['until'] = max(s['until'], s.quotaAt + q.quotaReset)
    end
    ration()
  end
end

-- How long it takes until all workers have synced, where slots are short.
local function turn()
  local two = min(2e12 * workers / s.rate, MAX_TURN)
  return max(PERIOD, min(floor(two), floor(HORIZON * workers / 8)))
end

local function throttle()
  local again = s.row > 0
  if not again then
    s.closedAt = t
  end
  s.epoch, s.cutAt, s.credit, s.row = s.epoch + 1, t, t, s.row + 1
  if s.oks > 0 and not (s.unspread > 0 and abs(s.resetAt - t) <= HORIZON) then
    local r = max(s.rate, s.unspread)
    local given = r
    if s.busy >= TOLD and s.unspread == 0 then
      given = min(r, s.flow * 1e6 / s.busy)
    end
    given = max(given, r / 2)
    if abs(given - s.ceiling) <= AGREE_WITHIN * s.ceiling then
      s.agreed = min(s.agreed + 1, AGREE_MOST)
    else
      s.agreed = 0
    end
    local was = s.ceiling
    s.ceiling = floor(given)
    s.peak = s.peak - (r >= was and floor(FADES * max(0, s.peak - s.ceiling)) or 0)
    if was > 0 and s.oks >= LONG_CALLS * cost then
      s.peak = max(s.peak, s.ceiling)
    end
    local rate = given * q.decrease / 1e6
    if s.unspread > 0 then
      s.unspread = min(s.unspread, floor(rate))
      rate = min(rate, s.rate)
    end
    change(rate, THROTTLE)
    s.ceiling = max(s.ceiling, s.rate)
    s.oks = 0
  end
  s.tat = min(s.tat, t + floor(turn() * (workers - 1) / workers) + spacing())
  s.level, s.passed = min(s.level + 1, 60), 0
  local most = ceil(PAUSE_GAPS * cost * 1e12 / s.rate)
  if again then
    most = max(most, q.pauseBase, min(2 * s.most, YEAR))
  end
  s.most = most
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
  local want, least = q.want, cost
  local gap = 1e12 / s.rate
  if s.row >= CLOSED_ROW then
    gap, want = max(4 * gap, HORIZON), least
  end
  local saved = floor((q.burst - 1) * gap)
  local start = max(s.tat, t - saved, s['until'])
  local free = HORIZON - (start - t)
  if free <= 0 then
    return 0, -free, 0
  end
  local part = floor(free / gap / min(workers, PART))
  if start - t > QUEUE then
    part = min(part, ceil(turn() / gap / workers))
  end
  local slots = min(max(least, min(want, part)), MOST)
  local span = ceil(slots * gap)
  s.tat = start + span
  return slots, start - t, span
end

measure()
if s.rate > q.max then
  void()
end
change(s.rate, s.why)
if q.resume == 1 then
  s.lifted = max(s.lifted, s['until'])
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
local kept = max(s.tat, s['until'], s.lifted, t) - t + IDLE + 2e12 / s.rate
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ceil(kept / 1000)))

return {
  slots, wait, span, s.epoch, s.rate, s.ceiling, s.level,
  max(0, s['until'] - t), s.resumes, workers, s.count, s.why,
}
