/* Right. */
#pragma once
