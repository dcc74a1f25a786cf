# SPDX-License-Identifier: Apache-2.0
"""The logger "normjit": silent until a program configures logging."""
import logging

logger = logging.getLogger("normjit")
logger.addHandler(logging.NullHandler())
