-- Reads a token's record and changes nothing.
-- KEYS[1]  the token's record
-- returns  found record | absent

local now = clock()
local rec = read(KEYS[1], now)
if rec then
  return 'found ' .. bytes48(now) .. rec
end
return 'absent ' .. bytes48(now)
