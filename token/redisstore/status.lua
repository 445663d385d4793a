-- Reads a token's record and changes nothing.
-- KEYS[1]  the token's record
-- returns  {'found', now, record} | {'absent', now, ''}

local now = floor(clock() / 1000)
local rec = read(KEYS[1], now)
return {rec and 'found' or 'absent', now, rec or ''}
