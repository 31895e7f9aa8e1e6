// Everything that this header declares is there already (minigrad/prelude.h).
