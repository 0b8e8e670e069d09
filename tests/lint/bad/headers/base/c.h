#pragma once
/* Comes too late. BAD-FILE */
