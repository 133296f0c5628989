"""`python -m localspec.setup.vulkan`: the devices that Vulkan's loader finds, as JSON. A driver that crashes takes only this along."""

import ctypes
import json
import sys

_LIBRARIES = ("libvulkan.so.1", "libvulkan.1.dylib", "libMoltenVK.dylib")
_CPU = 4  # VK_PHYSICAL_DEVICE_TYPE_CPU
_INSTANCE = 1  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
_MOST = 16
# In VkPhysicalDeviceProperties, of 824 bytes.
_TYPE_AT, _NAME_AT, _NAME_BYTES, _ROOM = 16, 20, 256, 4096


class _InstanceInfo(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("n_layers", ctypes.c_uint32),
        ("layers", ctypes.c_void_p),
        ("n_extensions", ctypes.c_uint32),
        ("extensions", ctypes.c_void_p),
    )


def devices() -> list[tuple[str, bool]]:
    """Return the name of every device, and whether it is a GPU and no software; nothing without a loader."""
    library = _loader()
    if library is None:
        return []
    instance, count = ctypes.c_void_p(), ctypes.c_uint32(_MOST)
    info = _InstanceInfo(kind=_INSTANCE)
    if library.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)) != 0:
        return []
    found = (ctypes.c_void_p * _MOST)()
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), found)
    told = []
    for device in found[: count.value]:
        properties = (ctypes.c_char * _ROOM)()
        library.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
        name = properties.raw[_NAME_AT : _NAME_AT + _NAME_BYTES].split(b"\0")[0]
        kind = int.from_bytes(properties.raw[_TYPE_AT:_NAME_AT], sys.byteorder)
        told.append((name.decode(errors="replace"), kind != _CPU))
    library.vkDestroyInstance(instance, None)
    return told


def _loader() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(devices())}\n")
