/* Private. */
#pragma once
