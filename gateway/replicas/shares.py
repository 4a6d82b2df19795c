"""The two scripts by which gateways share what is bounded for all of them together. Redis runs
each as one step, so that what they hand out never adds up to more than there is.

`LEASE`: slots. Each gateway says what limit it keeps to, what it has in use and what it could use;
it hears what its limit should be. What it holds counts until it has said that it holds less, or
has not been heard of for the time to live.

`QUOTA`: what may be spent in any minute. Each gateway says what it has spent since it last spoke
and what it still holds; it hears what more it may spend. What was spent comes back a minute later.

Times are Redis's own, so that gateways' clocks need not agree. A Redis that has just come up knows
nobody: until all gateways had time to say what they hold, nobody gets more than it has.
"""

SETTLE = 1000
"""Milliseconds in which every gateway that lives has spoken to a Redis that has come up."""

_LEASE = """
redis.replicate_commands()
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local me, ttl, settle = ARGV[1], tonumber(ARGV[2]), %d

local function fill(capacity, all)
  local left, hungry = capacity, {}
  for _, one in ipairs(all) do
    one.target = 0
    if one.demand > 0 then hungry[#hungry + 1] = one end
  end
  while left > 0 and #hungry > 0 do
    local each = math.floor(left / #hungry)
    if each == 0 then
      -- Fewer slots than gateways that want one: they take turns, a second each.
      local first = math.floor(now / 1000)
      for i = 0, left - 1 do
        local one = hungry[(first + i) %% #hungry + 1]
        one.target = one.target + 1
      end
      return
    end
    local still = {}
    for _, one in ipairs(hungry) do
      local more = math.min(each, one.demand - one.target)
      one.target, left = one.target + more, left - more
      if one.target < one.demand then still[#still + 1] = one end
    end
    hungry = still
  end
  local each, rest = math.floor(left / #all), left %% #all
  for i, one in ipairs(all) do one.target = one.target + each + (i <= rest and 1 or 0) end
end

local answers = {}
for i, key in ipairs(KEYS) do
  local at = 3 + (i - 1) * 4
  local capacity, limit = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local used, demand = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local mine, all, others = {id = me, demand = demand}, {}, 0
  all[1] = mine
  if redis.call('HSETNX', key, '#since', now) == 1 then redis.call('PEXPIRE', key, ttl * 2) end
  local young = now - redis.call('HGET', key, '#since') < settle
  local flat = redis.call('HGETALL', key)
  for j = 1, #flat, 2 do
    local held, wants, expires = string.match(flat[j + 1], '(%%d+) (%%d+) (%%d+)')
    if flat[j] == '#since' or flat[j] == me then
      held = nil
    elseif not held or tonumber(expires) <= now then
      redis.call('HDEL', key, flat[j])
    else
      all[#all + 1] = {id = flat[j], demand = tonumber(wants)}
      others = others + held
    end
  end
  table.sort(all, function(a, b) return a.id < b.id end)
  fill(capacity, all)
  local grant = math.min(mine.target, math.max(0, capacity - others))
  if young then grant = math.min(grant, limit) end
  local holds = math.max(limit, used, grant)
  redis.call('HSET', key, me, string.format('%%d %%d %%d', holds, demand, now + ttl))
  redis.call('PEXPIRE', key, ttl * 2)
  answers[i] = {grant, #all, young and 1 or 0}
end
return answers
"""

_QUOTA = """
redis.replicate_commands()
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local SLOT, SPAN = 500, 60000
local me, ttl, slot, settle = ARGV[1], tonumber(ARGV[2]), math.floor(now / SLOT), %d
local answers = {}
for i, key in ipairs(KEYS) do
  local at = 3 + (i - 1) * 4
  local limit, spent = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local held, demand = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  redis.call('HSETNX', key, 'born', now)
  local born = tonumber(redis.call('HGET', key, 'born'))
  if spent ~= 0 then redis.call('HINCRBY', key, 's' .. slot, spent) end
  local window, others, demands, count, slots = 0, 0, demand, 1, {}
  local flat = redis.call('HGETALL', key)
  for j = 1, #flat, 2 do
    local field, value = flat[j], flat[j + 1]
    local kind, name = string.sub(field, 1, 1), string.sub(field, 2)
    if kind == 's' and (slot - tonumber(name) - 1) * SLOT >= SPAN then
      redis.call('HDEL', key, field)
    elseif kind == 's' then
      window = window + tonumber(value)
      slots[#slots + 1] = {(tonumber(name) + 1) * SLOT + SPAN - now, tonumber(value)}
    elseif kind == 'h' then
      local holds, wants, expires = string.match(value, '(%%d+) (%%d+) (%%d+)')
      if not holds or tonumber(expires) <= now then
        redis.call('HDEL', key, field)
      elseif name ~= me then
        others, demands, count = others + holds, demands + wants, count + 1
      end
    end
  end
  local left = math.max(0, limit - window)
  local free = math.max(0, left - others - held)
  local floor = math.max(1, limit / 600)
  local target = math.ceil(left * (demand + floor) / (demands + count * floor))
  local grant = math.min(free, math.max(0, target - held))
  if now - born < settle then grant = 0 end
  redis.call('HSET', key, 'h' .. me, string.format('%%d %%d %%d', held + grant, demand, now + ttl))
  redis.call('PEXPIRE', key, SPAN + ttl + SLOT)
  local returns = {}
  if left * 20 < limit then
    table.sort(slots, function(a, b) return a[1] < b[1] end)
    for _, one in ipairs(slots) do
      returns[#returns + 1] = one[1]
      returns[#returns + 1] = one[2]
    end
  end
  answers[i] = {grant, target, left, count, tostring(born), now - born < settle and 1 or 0, returns}
end
return answers
"""

LEASE = _LEASE % SETTLE
QUOTA = _QUOTA % SETTLE
