"""A locale with a decimal comma, for tests of scripts: mawk and printf read and write numbers by the locale."""
import os
import subprocess


def comma_locale(folder):
    """The environment's variables for one that is made in `folder`; None where it cannot be made."""
    try:
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")], capture_output=True, check=False)
    except OSError:
        return None
    variables = {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}
    printed = subprocess.run(["bash", "-c", "printf %.1f 0,5"], env={**os.environ, **variables}, capture_output=True, text=True,
                             check=False).stdout
    return variables if printed == "0,5" else None
